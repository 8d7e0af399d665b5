package distributed

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/internal/replace"
	"ddpbatch/internal/vfs"
)

// tier is the node-local tier: a folder on the node's own disk, which all its ranks use. What lies there is safe from a crash of the
// job, not from the loss of the node; it is no checkpoint until it has been drained to the shared folder and committed there.
//
//	LOCAL/RUN-HASH/step-000000000300.ATTEMPT-SESSION-SAVE/shard-00001-of-00004.ddpt   the shard, byte for byte
//	                                                      shard-00001-of-00004.json   its record, written last
//
// HASH is of the run and of its shared folder: two runs of one name never meet here. RUN-HASH is this user's alone (mode 0700), as LOCAL may
// be anybody's; so nobody else can put a file or a link below it.
type tier struct {
	fs      vfs.FS
	path    string           // LOCAL/RUN-HASH
	place   checkpoint.Place // with the absolute path
	session uint32
	rank    int
	world   int
	broken  error // why the disk is not used to save; nil: it is
	warned  bool  // that the disk takes nothing; until it does again
	swept   bool  // of what earlier attempts have left
}

// local is one shard on the node's own disk.
type local struct {
	folder string
	record record
}

// openTier makes the folder of this run. A disk on which that cannot be done is passed by, but a folder that others can change is an error.
func (s *Saver) openTier(w welcome) (*tier, error) {
	if s.o.Local == "" {
		return nil, nil
	}
	place := w.Place
	place.Path = w.Home
	t := &tier{
		fs: s.o.FS, path: filepath.Join(s.o.Local, tierFolder(place)), place: place, session: w.Session,
		rank: s.talk.group.Rank(), world: s.talk.group.Size(),
	}
	if t.broken = t.makeFolder(); errors.Is(t.broken, vfs.ErrNotPrivate) {
		return nil, fmt.Errorf("node-local tier: %w", t.broken)
	}
	return t, nil
}

// tierFolder names the folder of a run: what can be read of its name, and what cannot be mistaken.
func tierFolder(place checkpoint.Place) string {
	plain := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '_'
	}, place.Run)
	hash := sha256.Sum256([]byte(place.Run + "\x00" + place.Path))
	return fmt.Sprintf("%s-%x", plain[:min(len(plain), 64)], hash[:8])
}

// makeFolder makes the run's folder, durably, or makes sure that it is ours.
func (t *tier) makeFolder() error {
	parent := filepath.Dir(t.path)
	if err := replace.Dir(t.fs, parent); err != nil {
		return err
	}
	if err := vfs.PrivateDir(t.fs, t.path); err != nil {
		return err
	}
	return t.fs.SyncDir(parent)
}

// trouble is why the tier is not used, if there is one.
func (t *tier) trouble() string {
	if t == nil || t.broken == nil {
		return ""
	}
	return t.broken.Error()
}

// tidy removes the run's folder if nothing is left in it.
func (t *tier) tidy() {
	if t != nil {
		_ = t.fs.RemoveDir(t.path) // not empty: another rank still has something there, or a save could not be drained
	}
}

// stage writes a job's shard to the node's own disk. Where that cannot be done it returns nil: the shard then goes to the shared
// folder directly.
func (s *Saver) stage(j *job) *local {
	if s.tier == nil || s.tier.broken != nil {
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
	if s.begun && !s.tier.swept {
		s.tier.swept = true
		s.tier.sweep()
	}
	return l
}

// write puts a shard and its record on the disk, durably.
func (t *tier) write(s *Saver, j *job) (*local, error) {
	name := saveName{step: j.meta.Step, attempt: t.place.Attempt, session: t.session, id: j.id}
	l := &local{folder: filepath.Join(t.path, name.String())}
	if err := t.makeSave(l.folder); err != nil {
		return nil, err
	}
	l.record = record{Run: t.place.Run, Path: t.place.Path, Attempt: t.place.Attempt, Step: j.meta.Step, Shard: t.rank, Shards: t.world}
	if t.rank == 0 {
		l.record.Plan, l.record.Meta = s.plan, &j.meta
	}
	dir := s.dir
	if j.meta.Quick {
		dir = s.quick
	}
	err := replace.File(j.ctx, t.fs, l.shardPath(), func(w io.Writer) (err error) {
		l.record.Info, err = dir.EncodeShard(j.ctx, w, j.meta.Step, t.rank, t.world, j.pieces)
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

func (l *local) shardPath() string {
	return filepath.Join(l.folder, shardName(l.record.Shard, l.record.Shards, "ddpt"))
}

func (l *local) recordPath() string {
	return filepath.Join(l.folder, shardName(l.record.Shard, l.record.Shards, "json"))
}

// discard lets go of a job's shard on the node's own disk.
func (s *Saver) discard(j *job) {
	if j.local != nil {
		s.tier.discard(j.local)
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
