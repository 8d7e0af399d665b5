package distributed

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"ddpbatch/internal/vfs"
)

// maxSaves is how many saves a scan looks at, newest first. A run leaves three or four, so this is more than any run leaves.
const maxSaves = 32

// scanAll lists the shards on a node's disk, including replicas.
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

// scan lists the complete shards of earlier attempts, or of an earlier Saver of this attempt, as far as names and sizes show. It leaves out
// what is damaged or missing. If the disk cannot be read it returns an error, because a save that was acknowledged may be there.
func (t *tier) scan() ([]foundShard, error) {
	if errors.Is(t.broken, vfs.ErrExposed) {
		return nil, nil // the files' owner is unknown; a warning that the disk is not used was logged
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

// earlierSaves returns the folders of saves that are not this Saver's, newest first.
func (t *tier) earlierSaves() ([]string, error) {
	entries, err := t.fs.ReadDir(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, e := range slices.Backward(entries) { // by name, and so by step
		if name, ok := parseSaveName(e.Name()); ok && e.IsDir() && t.earlier(name) {
			folders = append(folders, e.Name())
		}
	}
	return folders[:min(len(folders), maxSaves)], nil
}

func (t *tier) earlier(n saveName) bool {
	return n.attempt <= t.location.Attempt && n.session != t.session
}

// find returns a shard that scanAll has found.
func (t *tier) find(folder string, shard, shards int, replica bool) (*local, error) {
	if replica {
		t = t.others
	}
	l, err := t.inspect(folder, shard, shards)
	if l == nil && err == nil {
		err = errors.New("it has been removed or damaged")
	}
	return l, err
}

// inspect reads the record of a shard and looks for the shard. It returns nil if the shard does not exist or is incomplete.
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

// tidy removes what will not be resumed from any more, and the run's folder if it is empty then.
func (s *Saver) tidy() {
	if s.tier == nil {
		return
	}
	if s.tier.broken == nil {
		s.sweepEarlier()
	}
	_ = s.tier.fs.RemoveDir(s.tier.others.path)
	_ = s.tier.fs.RemoveDir(s.tier.path) // fails if another rank has files there, or a save could not be flushed
}

// sweepEarlier removes, once, what earlier attempts have left on this node. It does so after this attempt has recorded what it resumes
// from, which supersedes the saves there, and after this rank's first shard is written, if it has one, or when the Saver is closed.
func (s *Saver) sweepEarlier() {
	if s.begun && !s.tier.swept {
		s.tier.swept = true
		s.tier.sweep()
		s.tier.others.sweep()
	}
}

// sweep removes what earlier attempts have left. Several ranks of a node may do it at the same time. Foreign files stay.
func (t *tier) sweep() {
	entries, err := t.fs.ReadDir(t.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if name, ok := parseSaveName(e.Name()); ok && e.IsDir() && t.earlier(name) {
			t.sweepSave(filepath.Join(t.path, e.Name()))
		} else if t.otherProbe(e.Name()) && !e.IsDir() {
			_ = t.fs.Remove(filepath.Join(t.path, e.Name())) // another rank may have removed it
		}
	}
}

func (t *tier) sweepSave(folder string) {
	files, err := t.fs.ReadDir(folder)
	if err != nil {
		return
	}
	slices.Reverse(files) // a record goes before its shard
	for _, f := range files {
		if localNames().MatchString(f.Name()) && !f.IsDir() {
			_ = t.fs.Remove(filepath.Join(folder, f.Name())) // another rank may have removed it
		}
	}
	_ = t.fs.RemoveDir(folder)
}
