package distributed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// foundShard is a shard that a rank has found on its node's disk, as reported to rank 0.
type foundShard struct {
	Folder string `json:"folder"` // of the save
	Shard  int    `json:"shard"`
	Shards int    `json:"shards"`
	Size   int64  `json:"size"`

	Replica bool `json:"replica,omitempty"` // kept for another node
}

// uncommittedSave is a save of an earlier attempt, as far as its shards have been found.
type uncommittedSave struct {
	name    saveName
	seen    []seenBy // of each shard
	sizes   []int64
	missing []int // shards that no rank has found
}

// seenBy lists the ranks that see a shard on the disk that it was written to, and those that see its replica.
type seenBy struct{ own, replica []int }

// holder is a rank that sees a shard, or its replica.
type holder struct {
	Rank    int  `json:"rank"`
	Replica bool `json:"replica,omitempty"`
}

// uncommittedSaves runs on rank 0: it combines what was found on all nodes, newest first.
func uncommittedSaves(found [][]foundShard) []*uncommittedSave {
	saves := map[string]*uncommittedSave{} // by folder, and the number of shards
	for rank, list := range found {
		for _, r := range list {
			name, ok := parseSaveName(r.Folder)
			key := fmt.Sprint(r.Folder, " ", r.Shards)
			if saves[key] == nil {
				saves[key] = &uncommittedSave{name: name, seen: make([]seenBy, r.Shards), sizes: make([]int64, r.Shards)}
			}
			if l := saves[key]; ok && r.Shard < len(l.seen) {
				l.seen[r.Shard].add(rank, r.Replica)
				l.sizes[r.Shard] = r.Size
			}
		}
	}
	var all []*uncommittedSave
	for _, l := range saves {
		for i, s := range l.seen {
			if len(s.own)+len(s.replica) == 0 {
				l.missing = append(l.missing, i)
			}
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *uncommittedSave) int {
		return cmp.Or(cmp.Compare(b.name.step, a.name.step), cmp.Compare(b.name.attempt, a.name.attempt),
			strings.Compare(b.name.String(), a.name.String()))
	})
	return all
}

func (s *seenBy) add(rank int, replica bool) {
	if replica {
		s.replica = append(s.replica, rank)
	} else {
		s.own = append(s.own, rank)
	}
}

// assignShards returns which rank copies each shard: of the ranks of its node the one with the least work so far. It is followed by one of
// the ranks that see the replica, if there is one, in case the first finds the shard damaged.
func (l *uncommittedSave) assignShards() [][]holder {
	load := map[int]int64{}
	holders := make([][]holder, len(l.seen))
	for i, s := range l.seen {
		for _, ranks := range [][]int{s.own, s.replica} {
			if len(ranks) == 0 {
				continue
			}
			least := slices.MinFunc(ranks, func(a, b int) int { return cmp.Compare(load[a], load[b]) })
			if len(holders[i]) == 0 {
				load[least] += l.sizes[i] + 1
			}
			holders[i] = append(holders[i], holder{least, len(s.own) == 0 || len(holders[i]) == 1})
		}
	}
	return holders
}
