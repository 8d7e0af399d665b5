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

// tier is the node-local tier: a folder on the node's own disk, which all ranks of the node use. Its files survive a crash of the
// job, but not the loss of the node. They become a checkpoint only when they have been flushed to the shared folder and committed there.
//
//	LOCAL/RUN-HASH/step-000000000300.ATTEMPT-SESSION-SAVE/shard-00001-of-00004.ddpt   the shard, byte for byte
//	                                                      shard-00001-of-00004.json   its record, written last
//	LOCAL/RUN-HASH/replicas/step-...                                                  the same, of ranks on other nodes
//	LOCAL/RUN-HASH/probe-SESSION-RANK                                                 a file that tests the disk; removed at once
//
// HASH is a hash of the run's name and of its shared folder, so that two runs of the same name have different folders. LOCAL may be
// writable by everybody, with the sticky bit; RUN-HASH belongs to this user alone (mode 0700), so nobody else can put a file or a link
// below it, or replace it by another folder.
type tier struct {
	fs       vfs.FS
	path     string              // LOCAL/RUN-HASH
	location checkpoint.Location // with the absolute path
	session  uint32
	shard    shardNumber
	broken   error // why the disk is not used at all; nil: it is. vfs.ErrExposed: the files may be another user's
	refuses  error // why the disk is not used to save, though it may be read; nil: it is
	cramped  error // why the disk may be too full for a save at present
	warned   bool  // it has been logged that the disk accepts nothing; reset when it does again
	swept    bool  // the files of earlier attempts have been removed
	others   *tier // replicas of other nodes' shards, in a folder below; nil in that tier itself
	above    *tier // the tier whose others this is; nil if it is not
}

// local is one shard on the node's own disk.
type local struct {
	folder string
	record record
}

// stage writes a job's shard to the node's own disk. If that fails it returns nil, and the shard is written to the shared
// folder directly. It also returns nil if this rank has no shard.
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
		return nil // the job is over; the disk is not the cause
	}
	if err != nil {
		if !s.tier.warned {
			s.log.Warn("node-local disk does not accept the shard: writing it to the shared folder directly",
				"step", j.meta.Step, "path", s.tier.path, "err", err)
		}
		s.tier.warned = true
		return nil
	}
	s.tier.warned = false
	s.sweepEarlier()
	return l
}

// write writes a shard and its record to the disk, durably.
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

// makeSave creates the folder of a save, unless another rank of the node has. A rank that has ended may have removed the folder above it.
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

// folderTries bounds how often the folder of a save is created again for one shard: other ranks of the node may remove the last
// shard in it at that moment, but on a disk that loses folders the tries must end.
const folderTries = 8

// writeShard creates the folder of a save, and in it the file of a shard with what fill writes, durably. As long as the folder is empty,
// another rank of the node may remove it; then it is created again.
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

// saveOf returns the name of the folder of a job's save.
func (t *tier) saveOf(j *job) saveName {
	return saveName{step: j.meta.Step, attempt: t.location.Attempt, session: t.session, id: j.id}
}

// localOf returns a shard of such a save, which may not exist.
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

// errLocal marks errors of a node's own disk, not of the shared folder.
var errLocal = errors.New("node-local disk")

// flush copies a shard into a draft in the shared folder. It checks that what it reads is what was written.
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

// readsAsWritten reports whether a shard can be read and is what was written.
func readsAsWritten(f io.ReaderAt, info checkpoint.ShardInfo) bool {
	var sum checksum
	n, err := io.Copy(&sum, io.NewSectionReader(f, 0, info.Size))
	return err == nil && n == info.Size && uint32(sum) == info.CRC
}

// checksum is the CRC-32C of what is written to it.
type checksum uint32

func (c *checksum) Write(p []byte) (int, error) {
	*c = checksum(crc32c.Update(uint32(*c), p))
	return len(p), nil
}

// discard removes a job's shards from the node's own disk, and replicas; replicas that are on their way are removed when they have arrived.
func (s *Saver) discard(j *job) {
	j.dropped.Store(true)
	if j.local != nil {
		s.tier.discard(j.local)
	}
	if s.replicas != nil {
		s.replicas.discard(j)
	}
}

// discard removes a shard, its record first, and the folder with the last shard. A later attempt sweeps what stays.
func (t *tier) discard(l *local) {
	for _, path := range []string{l.recordPath(), l.shardPath()} {
		if err := t.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	_ = t.fs.RemoveDir(l.folder) // fails while other ranks have shards there
}
