package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/checkpoint/internal/shard"
	"ddpbatch/internal/vfs"
)

const (
	// maxOpen bounds the shards that a Checkpoint keeps open. If it has more, it opens and closes them as needed.
	maxOpen = 64
	// openAtOnce is how many shards are opened or checked at a time: each waits for replies of a file server.
	openAtOnce = 16
)

// slot holds a shard of a Checkpoint while it is open.
type slot struct {
	mu    sync.Mutex // held while the shard is being opened
	users int
	open  *openShard   // nil: closed
	stale []*openShard // replaced files that users may still be reading
}

// use runs f on shard i. If the open files turn out to be stale, it runs f once more on newly opened files.
func (c *Checkpoint) use(ctx context.Context, i int, f func(*shard.Reader) error) error {
	var err error
	for range 2 {
		var s *openShard
		if s, err = c.acquire(ctx, i); err != nil {
			return err
		}
		err = f(s.r)
		stale := errors.Is(err, syscall.ESTALE)
		if stale {
			c.retire(i, s)
		}
		c.release(i)
		if !stale {
			break
		}
	}
	return judgeShard(c.shardPath(i), err)
}

// acquire opens shard i if it is not open. The caller must release it.
func (c *Checkpoint) acquire(ctx context.Context, i int) (*openShard, error) {
	s := &c.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		err := retryStale(func() (err error) { s.open, err = c.openWithBase(ctx, i); return err })
		if err != nil {
			return nil, err
		}
	}
	s.users++
	return s.open, nil
}

// release closes stale files, and a shard that is not kept open, once nobody uses them.
func (c *Checkpoint) release(i int) {
	s := &c.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.closeStale() // it was only read from
	if s.open != nil && len(c.slots) > maxOpen {
		s.open.close()
		s.open = nil
	}
}

// retire marks shard i as stale if was is still the open one, so that the next user opens it anew.
func (c *Checkpoint) retire(i int, was *openShard) {
	s := &c.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == was {
		s.open, s.stale = nil, append(s.stale, was)
	}
}

// openAll opens shards, several at a time. The caller must release them, unless there is an error.
func (c *Checkpoint) openAll(ctx context.Context, shards []int) error {
	var mu sync.Mutex
	var opened []int
	err := inParallel(ctx, openAtOnce, shards, func(ctx context.Context, i int) error {
		_, err := c.acquire(ctx, i)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, i)
		}
		return err
	})
	if err != nil {
		c.releaseAll(opened)
	}
	return err
}

func (c *Checkpoint) releaseAll(shards []int) {
	for _, i := range shards {
		c.release(i)
	}
}

// Close closes all files. c can be read again afterward.
func (c *Checkpoint) Close() error {
	var errs []error
	for i := range c.slots {
		errs = append(errs, c.slots[i].close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = nil
	return errors.Join(errs...)
}

// close closes all files. They must not be in use.
func (s *slot) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.closeStale()
	if s.open != nil {
		err = errors.Join(err, s.open.close())
		s.open = nil
	}
	return err
}

func (s *slot) closeStale() error {
	var errs []error
	for _, old := range s.stale {
		errs = append(errs, old.close())
	}
	s.stale = nil
	return errors.Join(errs...)
}

// openShard is a shard whose size, header, table and checksum have been checked.
type openShard struct {
	file vfs.File
	r    *shard.Reader
	base *openShard // nil for a shard of a full checkpoint
}

func (s *openShard) close() error {
	s.r.Close()
	err := s.file.Close()
	if s.base != nil {
		err = errors.Join(err, s.base.close())
	}
	return err
}

// openWithBase opens shard i, and the same shard of the base if there is one.
func (c *Checkpoint) openWithBase(ctx context.Context, i int) (*openShard, error) {
	s, err := c.openShard(ctx, i)
	if err != nil {
		return nil, err
	}
	switch {
	case c.m.Base != nil:
		err = c.joinBase(ctx, i, s)
	case s.r.IsDelta():
		err = corrupt(c.shardPath(i), "it has chunks that need a base, but the manifest names none")
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (c *Checkpoint) openShard(ctx context.Context, i int) (*openShard, error) {
	path, record := c.shardPath(i), c.m.Shards[i]
	file, err := c.open(ctx, path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() != record.Size {
		err = corrupt(path, "it is %d bytes long, the manifest says %d", info.Size(), record.Size)
	}
	var r *shard.Reader
	if err == nil {
		header := shard.Header{Version: uint32(c.m.Version), Step: c.m.Step, Shard: i, Shards: len(c.m.Shards)}
		r, err = shard.Open(file, record.Size, header, c.pieces(i), uint32(record.CRC))
		err = judgeShard(path, err)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &openShard{file: file, r: r}, nil
}

// joinBase opens shard i of the base and sets it as the base of s.
func (c *Checkpoint) joinBase(ctx context.Context, i int, s *openShard) error {
	base, err := c.baseOpened(ctx)
	if err != nil {
		return err
	}
	if s.base, err = base.openShard(ctx, i); err != nil {
		return err
	}
	return judgeShard(c.shardPath(i), s.r.SetBase(s.base.r))
}

func (c *Checkpoint) baseOpened(ctx context.Context) (base *Checkpoint, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base == nil {
		c.base, err = c.openBase(ctx)
	}
	return c.base, err
}

// openBase opens the base of a delta, and checks that it is the very checkpoint that the delta was made from.
func (c *Checkpoint) openBase(ctx context.Context) (*Checkpoint, error) {
	want := c.m.Base
	base, err := c.d.openFolder(ctx, want.Folder, c.patient)
	switch {
	case errors.Is(err, ErrNone):
		return nil, c.missing(filepath.Join(c.d.path, want.Folder, manifest.Name), "it is missing, and "+c.folder+" is a delta of it")
	case err != nil:
		return nil, err
	}
	if got := manifest.CRC(base.data); got != want.CRC {
		what := fmt.Sprintf("%s is not the base that it was made from: the manifest's checksum is %v, not %v", want.Folder, got, want.CRC)
		return nil, &CorruptError{Path: c.manifestPath(), Detail: what, missing: true}
	}
	if err := sameLayout(c.m, base.m); err != nil {
		return nil, corrupt(c.manifestPath(), "%s cannot be the base: %v", want.Folder, err)
	}
	return base, nil
}

// open opens a file of the checkpoint.
func (c *Checkpoint) open(ctx context.Context, path string) (f vfs.File, err error) {
	if c.patient {
		err = c.d.retry(ctx, func() error { f, err = c.d.fs.Open(path); return err })
	} else {
		f, err = c.d.fs.Open(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, c.missing(path, "it is missing")
	case errors.Is(err, vfs.ErrNotRegular):
		return nil, corrupt(path, "%v", vfs.ErrNotRegular)
	}
	return f, err
}

// pieces returns the pieces of shard i, in its order.
func (c *Checkpoint) pieces(i int) []shard.Piece {
	pieces := make([]shard.Piece, len(c.byShard[i]))
	for k, ref := range c.byShard[i] {
		t := &c.m.Tensors[ref.Tensor]
		pieces[k] = shard.Piece{Name: t.Name, Layout: layoutOf(t.DType), Length: ref.Length}
	}
	return pieces
}
