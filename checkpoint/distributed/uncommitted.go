package distributed

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/vfs"
)

// foundShard is a shard that a rank finds on its node's disk, as it is reported to rank 0.
type foundShard struct {
	Folder string `json:"folder"` // of the save
	Shard  int    `json:"shard"`
	Shards int    `json:"shards"`
	Size   int64  `json:"size"`

	Replica bool `json:"replica,omitempty"` // kept for another node
}

// maxSaves is how many saves a scan looks at, the newest first. A run leaves three or four; so many more are no run's.
const maxSaves = 32

// scanAll lists what is on a node's disk, replicas included.
func (t *tier) scanAll() ([]foundShard, error) {
	own, err := t.scan()
	if err != nil || t.broken != nil {
		return nil, err
	}
	others, err := t.others.scan()
	for i := range others {
		others[i].Replica = true
	}
	return append(own, others...), err
}

// scan lists the shards of earlier attempts, or of an earlier Saver of this one, that are whole, as far as names and sizes tell. What is damaged
// or missing is not there; what the disk cannot tell is an error, as it may be a save that Save has acknowledged.
func (t *tier) scan() ([]foundShard, error) {
	if errors.Is(t.broken, vfs.ErrExposed) {
		return nil, nil // nobody knows who has put it there, and that the disk is passed by has been said
	}
	if t.broken != nil {
		if _, err := t.fs.Stat(t.path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, t.broken
	}
	folders, err := t.earlierSaves()
	if err != nil {
		return nil, err
	}
	var found []foundShard
	for _, folder := range folders {
		files, err := t.fs.ReadDir(filepath.Join(t.path, folder))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			shard, shards, ok := parseRecordName(f.Name())
			if !ok || !f.Type().IsRegular() {
				continue
			}
			l, err := t.inspect(folder, shard, shards)
			if err != nil {
				return nil, err
			}
			if l != nil {
				found = append(found, foundShard{Folder: folder, Shard: shard, Shards: shards, Size: l.record.Info.Size})
			}
		}
	}
	return found, nil
}

// earlierSaves are the folders of saves that are not this Saver's, the newest first.
func (t *tier) earlierSaves() ([]string, error) {
	entries, err := t.fs.ReadDir(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, e := range slices.Backward(entries) { // by name, which is by step
		if name, ok := parseSaveName(e.Name()); ok && e.IsDir() && t.earlier(name) {
			folders = append(folders, e.Name())
		}
	}
	return folders[:min(len(folders), maxSaves)], nil
}

func (t *tier) earlier(n saveName) bool {
	return n.attempt <= t.location.Attempt && n.session != t.session
}

// find is a shard that scanAll has found.
func (t *tier) find(folder string, shard, shards int, replica bool) (*local, error) {
	if replica {
		t = t.others
	}
	l, err := t.inspect(folder, shard, shards)
	if l == nil && err == nil {
		err = errors.New("it is gone")
	}
	return l, err
}

// inspect reads the record of a shard and looks for the shard; nil: it is not there, or not whole.
func (t *tier) inspect(folder string, shard, shards int) (*local, error) {
	name, _ := parseSaveName(folder)
	l := &local{folder: filepath.Join(t.path, folder)}
	path := filepath.Join(l.folder, shardName(shard, shards, "json"))
	var err error
	l.record, err = readRecord(t.fs, path, shard)
	if errors.Is(err, errDamaged) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &l.record
	if r.Run != t.location.Run || r.Path != t.location.Path || r.Step != name.step || r.Attempt != name.attempt || r.Shards != shards {
		return nil, nil
	}
	info, err := t.fs.Stat(l.shardPath())
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() != r.Info.Size) {
		return nil, nil
	}
	return l, err
}

// uncommittedSave is a save of an earlier attempt, as far as its shards have been found.
type uncommittedSave struct {
	name    saveName
	seen    []seenBy // of each shard
	sizes   []int64
	missing []int // shards that nobody sees
}

// seenBy is the ranks that see a shard on the disk that it was written to, and those that see its replica.
type seenBy struct{ own, replica []int }

// holder is a rank that sees a shard, or its replica.
type holder struct {
	Rank    int  `json:"rank"`
	Replica bool `json:"replica,omitempty"`
}

// uncommittedSaves is rank 0's: what has been found on all nodes, the newest first.
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
		return cmp.Or(cmp.Compare(b.name.step, a.name.step), cmp.Compare(b.name.attempt, a.name.attempt), strings.Compare(b.name.String(), a.name.String()))
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

// assignShards says which rank copies each shard: of the ranks of its node the one with least to do so far. After it comes one of those that see the
// replica, if there is one, for when the first finds the shard damaged.
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
