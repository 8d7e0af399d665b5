package distributed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"ddpbatch/internal/replace"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
)

// openTier creates the folder of this run and tests its disk, to which this rank will write at most bytes at a time. A disk
// that accepts nothing is not used; neither is a folder that others can change or have made, nor the files in it.
func (s *Saver) openTier(ctx context.Context, w welcome, bytes int64) *tier {
	if s.o.Local == "" {
		return nil
	}
	location := w.Place
	location.Path = w.Home
	path := filepath.Join(s.o.Local, tierFolder(location))
	t := &tier{fs: vfs.Within(s.o.FS, path), path: path, location: location, session: w.Session, shard: s.shard}
	if t.broken = t.makeFolder(); t.broken == nil {
		t.try(ctx, s.channel.group.Rank(), bytes)
	}
	t.others = &tier{
		fs: t.fs, path: filepath.Join(t.path, "replicas"), location: t.location, session: t.session, broken: t.broken, above: t,
	}
	return t
}

// makeFolder creates the run's folder, durably, or checks that it belongs to this user.
func (t *tier) makeFolder() error {
	parent := filepath.Dir(t.path)
	var err error
	if t.above != nil {
		err = t.above.makeFolder()
	} else if _, look := t.fs.Stat(t.path); errors.Is(look, vfs.ErrExposed) {
		err = look // before anything is created there
	} else {
		err = replace.Dir(t.fs, parent)
	}
	if err != nil {
		return err
	}
	if err := vfs.PrivateDir(t.fs, t.path); err != nil {
		return err
	}
	return t.fs.SyncDir(parent)
}

// try does with a small file what a save will do on the node's own disk, so that a fault is found before
// training, and checks whether there is room for that many bytes. It counts this rank's alone, because which ranks share a disk is unknown.
// A full disk is still used: what fills it may be what an earlier attempt has left there.
func (t *tier) try(ctx context.Context, rank int, bytes int64) {
	if ctx.Err() != nil {
		return
	}
	err := t.probe(rank)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		t.cramped = err
		return
	}
	if err != nil {
		t.refuses = err
		return
	}
	space, err := t.fs.Space(t.path)
	if err == nil && space.Total > 0 && space.Free < uint64(bytes) {
		t.cramped = fmt.Errorf("%d bytes are free on %s, and this rank alone may write %d in a save; "+
			"other ranks of the node may need more",
			space.Free, space.Type, bytes)
	}
}

// probe writes a file, durably, and removes it.
func (t *tier) probe(rank int) error {
	path := filepath.Join(t.path, t.probeName(rank))
	f, err := t.fs.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(path))
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	_ = t.fs.Remove(path) // if this fails, a later attempt removes it
	return err
}

// trouble is what a rank reports about its node's own disk.
type trouble struct {
	Broken  string `json:"broken,omitempty"`  // why it is not used to save
	Cramped string `json:"cramped,omitempty"` // why it may be too full for a save at present
}

func (t *tier) trouble() (all trouble) {
	switch {
	case t == nil:
	case errors.Is(t.broken, vfs.ErrExposed):
		all.Broken = t.broken.Error() + "; saves that may be there are ignored"
	case t.broken != nil:
		all.Broken = t.broken.Error()
	case t.refuses != nil:
		all.Broken = t.refuses.Error()
	case t.cramped != nil:
		all.Cramped = t.cramped.Error()
	}
	return all
}

// mostRanks is how many ranks or shards a warning names; there may be thousands.
const mostRanks = 16

// warnOfTiers runs on rank 0: it logs once which ranks cannot use their nodes' own disks, and which may not be able to.
func (s *Saver) warnOfTiers(all []valueOrFailure[trouble]) {
	warn := func(message string, what func(trouble) string) {
		var ranks []int
		for rank, r := range all {
			if what(r.Value) != "" {
				ranks = append(ranks, rank)
			}
		}
		if len(ranks) > 0 {
			s.log.Warn(message, "path", s.o.Local, "ranks", text.Few(ranks, mostRanks), "err", what(all[ranks[0]].Value))
		}
	}
	warn("node-local disk cannot be used: these ranks write to the shared folder directly; check the path",
		func(t trouble) string { return t.Broken })
	warn("node-local disk has no room: shards that do not fit there are written to the shared folder directly; free space on the node",
		func(t trouble) string { return t.Cramped })
}
