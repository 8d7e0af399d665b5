package distributed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/replace"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
)

// tier is the node-local tier: a folder on the node's own disk, which all its ranks use. What lies there is safe from a crash of the
// job, not from the loss of the node; it is no checkpoint until it has been flushed to the shared folder and committed there.
//
//	LOCAL/RUN-HASH/step-000000000300.ATTEMPT-SESSION-SAVE/shard-00001-of-00004.ddpt   the shard, byte for byte
//	                                                      shard-00001-of-00004.json   its record, written last
//	LOCAL/RUN-HASH/replicas/step-...                                                  the same, of ranks on other nodes
//	LOCAL/RUN-HASH/probe-SESSION-RANK                                                 a file to try the disk with; there for a moment
//
// HASH is of the run and of its shared folder: two runs of one name never meet here. RUN-HASH is this user's alone (mode 0700), as LOCAL may
// be anybody's, with the sticky bit; so nobody else can put a file or a link below it, nor another folder in its place.
type tier struct {
	fs       vfs.FS
	path     string              // LOCAL/RUN-HASH
	location checkpoint.Location // with the absolute path
	session  uint32
	shard    shardNumber
	broken   error // why the disk is not used at all; nil: it is. vfs.ErrExposed: what lies there may be another user's
	refuses  error // why the disk is not used to save, though it may be read; nil: it is
	cramped  error // why the disk may not take a save now, and later may
	warned   bool  // that the disk takes nothing; until it does again
	swept    bool  // of what earlier attempts have left
	others   *tier // replicas of other nodes' shards, in a folder below; nil: this is that
	above    *tier // whose others this is; nil: nobody's
}

// local is one shard on the node's own disk.
type local struct {
	folder string
	record record
}

// openTier makes the folder of this run, and tries its disk, on which this rank is going to write so many bytes at most at a time. A disk that
// takes nothing is passed by; so is a folder that others can change, or have taken the name of, with all that lies in it.
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
	t.others = &tier{fs: t.fs, path: filepath.Join(t.path, "replicas"), location: t.location, session: t.session, broken: t.broken, above: t}
	return t
}

// tierFolder names the folder of a run: what can be read of its name, and what cannot be mistaken.
func tierFolder(location checkpoint.Location) string {
	plain := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '_'
	}, location.Run)
	hash := sha256.Sum256([]byte(location.Run + "\x00" + location.Path))
	return fmt.Sprintf("%s-%x", plain[:min(len(plain), 64)], hash[:8])
}

// makeFolder makes the run's folder, durably, or makes sure that it is ours.
func (t *tier) makeFolder() error {
	parent := filepath.Dir(t.path)
	var err error
	if t.above != nil {
		err = t.above.makeFolder()
	} else if _, look := t.fs.Stat(t.path); errors.Is(look, vfs.ErrExposed) {
		err = look // before anything is made there
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

// trouble is what a rank reports of its node's own disk.
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

// mostRanks is how many ranks or shards a warning names, of what may be a thousand.
const mostRanks = 16

// warnOfTiers is rank 0's: it says once which ranks cannot use their nodes' own disks, and which may not be able to.
func (s *Saver) warnOfTiers(all []workReport[trouble]) {
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

// stage writes a job's shard to the node's own disk. Where that cannot be done it returns nil: the shard then goes to the shared
// folder directly. It is nil, too, where this rank has none.
func (s *Saver) stage(j *job) *local {
	if s.tier == nil || s.tier.broken != nil || s.tier.refuses != nil {
		return nil
	}
	if s.shard.none() {
		s.sweepEarlier()
		return nil
	}
	l, err := s.tier.write(s, j)
	if err != nil && j.ctx.Err() != nil {
		return nil // the job is over, and the disk not to blame
	}
	if err != nil {
		level := slog.LevelWarn
		if s.tier.warned {
			level = slog.LevelDebug
		}
		s.tier.warned = true
		s.log.Log(j.ctx, level, "node-local disk does not take the shard: writing it to the shared folder directly", "step", j.meta.Step, "path", s.tier.path, "err", err)
		return nil
	}
	s.tier.warned = false
	s.sweepEarlier()
	return l
}

// write puts a shard and its record on the disk, durably.
func (t *tier) write(s *Saver, j *job) (*local, error) {
	l := t.localOf(t.saveOf(j), t.shard)
	if s.channel.isCoordinator() {
		l.record.World, l.record.Plan, l.record.Meta = s.channel.group.Size(), s.plan, &j.meta
	}
	dir := s.dir
	if j.meta.Quick {
		dir = s.quick
	}
	err := t.writeShard(j.ctx, l, func(w io.Writer) (err error) {
		l.record.Info, err = dir.EncodeShard(j.ctx, w, j.meta.Step, t.shard.i, t.shard.of, j.pieces)
		return err
	})
	if err == nil {
		err = l.record.write(j.ctx, t.fs, l.recordPath())
	}
	if err != nil {
		t.discard(l)
		return nil, err
	}
	return l, nil
}

// makeSave makes the folder of a save, which another rank of the node may have made. A rank that has ended may have tidied up above it.
func (t *tier) makeSave(folder string) error {
	err := t.fs.Mkdir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		if err := t.makeFolder(); err != nil {
			return err
		}
		err = t.fs.Mkdir(folder)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return t.fs.SyncDir(t.path)
}

// folderTries bounds how often the folder of a save is made anew for one shard: as often as other ranks of the node may let go of the last shard
// in it just then, and not for ever on a disk that forgets folders.
const folderTries = 8

// writeShard makes the folder of a save, and in it the file of a shard from what fill writes, durably. Until that has a name in it, another
// rank of the node may remove the folder as empty: then it is made again.
func (t *tier) writeShard(ctx context.Context, l *local, fill func(io.Writer) error) error {
	for try := 1; ; try++ {
		filled := false
		err := t.makeSave(l.folder)
		if err == nil {
			err = replace.File(ctx, t.fs, l.shardPath(), func(w io.Writer) error {
				filled = true
				return fill(w)
			})
		}
		if filled || try == folderTries || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// saveOf names the folder of a job's save.
func (t *tier) saveOf(j *job) saveName {
	return saveName{step: j.meta.Step, attempt: t.location.Attempt, session: t.session, id: j.id}
}

// localOf is a shard of such a save, whether it is there or not.
func (t *tier) localOf(name saveName, shard shardNumber) *local {
	return &local{folder: filepath.Join(t.path, name.String()), record: record{
		Run: t.location.Run, Path: t.location.Path, Attempt: name.attempt, Step: name.step, Shard: shard.i, Shards: shard.of,
	}}
}

func (l *local) shardPath() string {
	return filepath.Join(l.folder, shardName(l.record.Shard, l.record.Shards, "ddpt"))
}

func (l *local) recordPath() string {
	return filepath.Join(l.folder, shardName(l.record.Shard, l.record.Shards, "json"))
}

// discard lets go of a job's shards on the node's own disk, and of replicas: of those that are on their way when they have come.
func (s *Saver) discard(j *job) {
	j.dropped.Store(true)
	if j.local != nil {
		s.tier.discard(j.local)
	}
	if s.replicas != nil {
		s.replicas.discard(j)
	}
}

// discard removes a shard, its record first; and the folder with the last one. What stays is swept by a later attempt.
func (t *tier) discard(l *local) {
	for _, path := range []string{l.recordPath(), l.shardPath()} {
		if err := t.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	_ = t.fs.RemoveDir(l.folder) // not empty while other ranks have theirs there
}

// tidy removes what nobody will go on from any more, and the run's folder if nothing is left in it.
func (s *Saver) tidy() {
	if s.tier == nil {
		return
	}
	if s.tier.broken == nil {
		s.sweepEarlier()
	}
	_ = s.tier.fs.RemoveDir(s.tier.others.path)
	_ = s.tier.fs.RemoveDir(s.tier.path) // not empty: another rank still has something there, or a save could not be flushed
}

// sweepEarlier removes, once, what earlier attempts have left on this node. It does so when this attempt has recorded what it goes on from, so nobody
// will go on from those any more, and this rank's first shard is there, if it has one, or it ends.
func (s *Saver) sweepEarlier() {
	if s.begun && !s.tier.swept {
		s.tier.swept = true
		s.tier.sweep()
		s.tier.others.sweep()
	}
}

// sweep removes what earlier attempts have left. Ranks of a node may do it at the same time. Foreign files stay.
func (t *tier) sweep() {
	entries, err := t.fs.ReadDir(t.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if name, ok := parseSaveName(e.Name()); ok && e.IsDir() && t.earlier(name) {
			t.sweepSave(filepath.Join(t.path, e.Name()))
		} else if t.otherProbe(e.Name()) && !e.IsDir() {
			_ = t.fs.Remove(filepath.Join(t.path, e.Name())) // another rank may have been faster
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
			_ = t.fs.Remove(filepath.Join(folder, f.Name())) // another rank may have been faster
		}
	}
	_ = t.fs.RemoveDir(folder)
}
