package distributed

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// remain is a shard that a rank finds on its node's disk, as rank 0 is told of it.
type remain struct {
	Folder string `json:"folder"` // of the save
	Shard  int    `json:"shard"`
	Shards int    `json:"shards"`
	Size   int64  `json:"size"`
}

// maxSaves is how many saves a scan looks at, the newest first. A run leaves three or four; so many more are no run's.
const maxSaves = 32

// scan lists the shards of earlier attempts, or of an earlier Saver of this one, that are whole, as far as names and sizes tell. What is damaged
// or missing is not there; what the disk cannot tell is an error, as it may be a save that Save has acknowledged.
func (t *tier) scan() ([]remain, error) {
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
	var found []remain
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
				found = append(found, remain{Folder: folder, Shard: shard, Shards: shards, Size: l.record.Info.Size})
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
	return n.attempt <= t.place.Attempt && n.session != t.session
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
	if r.Run != t.place.Run || r.Path != t.place.Path || r.Step != name.step || r.Attempt != name.attempt || r.Shards != shards {
		return nil, nil
	}
	info, err := t.fs.Stat(l.shardPath())
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() != r.Info.Size) {
		return nil, nil
	}
	return l, err
}

// leftover is a save of an earlier attempt, as far as its shards have been found.
type leftover struct {
	name    saveName
	seen    [][]int // the ranks that see each shard
	sizes   []int64
	missing []int // shards that nobody sees
}

// leftovers is rank 0's: what has been found on all nodes, the newest first.
func leftovers(found [][]remain) []*leftover {
	saves := map[string]*leftover{} // by folder, and the number of shards
	for rank, list := range found {
		for _, r := range list {
			name, ok := parseSaveName(r.Folder)
			key := fmt.Sprint(r.Folder, " ", r.Shards)
			if saves[key] == nil {
				saves[key] = &leftover{name: name, seen: make([][]int, r.Shards), sizes: make([]int64, r.Shards)}
			}
			if l := saves[key]; ok && r.Shard < len(l.seen) {
				l.seen[r.Shard], l.sizes[r.Shard] = append(l.seen[r.Shard], rank), r.Size
			}
		}
	}
	var all []*leftover
	for _, l := range saves {
		for i, ranks := range l.seen {
			if len(ranks) == 0 {
				l.missing = append(l.missing, i)
			}
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *leftover) int {
		return cmp.Or(cmp.Compare(b.name.step, a.name.step), cmp.Compare(b.name.attempt, a.name.attempt), strings.Compare(b.name.String(), a.name.String()))
	})
	return all
}

// deal says which rank copies each shard: of the ranks of its node the one with least to do so far.
func (l *leftover) deal() []int {
	load := map[int]int64{}
	holders := make([]int, len(l.seen))
	for i, ranks := range l.seen {
		least := slices.MinFunc(ranks, func(a, b int) int { return cmp.Compare(load[a], load[b]) })
		holders[i] = least
		load[least] += l.sizes[i] + 1
	}
	return holders
}
