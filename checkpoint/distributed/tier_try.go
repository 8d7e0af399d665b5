package distributed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"ddpbatch/internal/vfs"
)

// try does with a small file what a save will do on the node's own disk, so that what would fail at the first save is known before
// training, and looks whether there is room for so many bytes: this rank's alone, as nobody knows which ranks share a disk. A full disk is
// no reason to pass it by: what an earlier attempt has left there may be what fills it.
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
		t.cramped = fmt.Errorf("%d bytes are free on %s, and this rank alone may write %d in a save; what other ranks of the node write comes on top",
			space.Free, space.Type, bytes)
	}
}

// probePrefix begins the name of a probe, before its session and rank.
const probePrefix = "probe-"

func (t *tier) probeName(rank int) string {
	return fmt.Sprintf("%s%08x-%d", probePrefix, t.session, rank)
}

// otherProbe says whether a file is a probe that an earlier attempt could not remove.
func (t *tier) otherProbe(name string) bool {
	return strings.HasPrefix(name, probePrefix) && !strings.HasPrefix(name, fmt.Sprintf("%s%08x-", probePrefix, t.session))
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
	_ = t.fs.Remove(path) // a later attempt will, then
	return err
}

// trouble is what a rank tells of its node's own disk.
type trouble struct {
	Broken  string `json:"broken,omitempty"`  // why it is not used to save
	Cramped string `json:"cramped,omitempty"` // why it may not take a save now
}

func (t *tier) trouble() (all trouble) {
	switch {
	case t == nil:
	case errors.Is(t.broken, vfs.ErrExposed):
		all.Broken = t.broken.Error() + "; what may have been saved there is not looked at"
	case t.broken != nil:
		all.Broken = t.broken.Error()
	case t.refuses != nil:
		all.Broken = t.refuses.Error()
	case t.cramped != nil:
		all.Cramped = t.cramped.Error()
	}
	return all
}

// warnOfTiers is rank 0's: it says once which ranks cannot use their nodes' own disks, and which may not be able to.
func (s *Saver) warnOfTiers(all []report[trouble]) {
	tell := func(message string, what func(trouble) string) {
		var ranks []int
		for rank, r := range all {
			if what(r.Value) != "" {
				ranks = append(ranks, rank)
			}
		}
		if len(ranks) > 0 {
			s.log.Warn(message, "path", s.o.Local, "ranks", few(ranks), "err", what(all[ranks[0]].Value))
		}
	}
	tell("node-local disk cannot be used: these ranks write to the shared folder directly; check the path",
		func(t trouble) string { return t.Broken })
	tell("node-local disk has no room: shards that do not fit there are written to the shared folder directly; free space on the node",
		func(t trouble) string { return t.Cramped })
}
