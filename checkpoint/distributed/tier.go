package distributed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/crc32c"
	"ddpbatch/internal/replace"
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
// HASH is of the run and of its shared folder: two runs of one name never meet here. RUN-HASH is this user's alone (mode 0700), as LOCAL
// may be anybody's, with the sticky bit; so nobody else can put a file or a link below it, nor another folder in its place.
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
		if !s.tier.warned {
			s.log.Warn("node-local disk does not take the shard: writing it to the shared folder directly",
				"step", j.meta.Step, "path", s.tier.path, "err", err)
		}
		s.tier.warned = true
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

// folderTries bounds how often the folder of a save is made anew for one shard: as often as other ranks of the node may let go of the last
// shard in it just then, and not for ever on a disk that forgets folders.
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

// errLocal marks what is wrong with a node's own disk, not with the shared folder.
var errLocal = errors.New("node-local disk")

// flush copies a shard into a draft in the shared folder; what it reads must be what was written.
func (t *tier) flush(ctx context.Context, l *local, draft *checkpoint.Draft) (checkpoint.ShardInfo, error) {
	f, err := t.fs.Open(l.shardPath())
	if err != nil {
		return checkpoint.ShardInfo{}, fmt.Errorf("%w: %w", errLocal, err)
	}
	defer f.Close()
	info, err := draft.CopyShard(ctx, l.record.Shard, l.record.Shards, f, l.record.Info)
	if err != nil && ctx.Err() == nil && !readsAsWritten(f, l.record.Info) {
		err = fmt.Errorf("%w: %w", errLocal, err)
	}
	return info, err
}

// readsAsWritten says whether a shard can be read and is what was written.
func readsAsWritten(f io.ReaderAt, info checkpoint.ShardInfo) bool {
	var sum checksum
	n, err := io.Copy(&sum, io.NewSectionReader(f, 0, info.Size))
	return err == nil && n == info.Size && uint32(sum) == info.CRC
}

// checksum is that of what is written to it.
type checksum uint32

func (c *checksum) Write(p []byte) (int, error) {
	*c = checksum(crc32c.Update(uint32(*c), p))
	return len(p), nil
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
