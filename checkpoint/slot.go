package checkpoint

import (
	"context"
	"errors"
	"sync"
	"syscall"

	"ddpbatch/checkpoint/internal/shard"
)

const (
	// maxOpen bounds the shards that a Checkpoint keeps open: one with more opens them as it goes.
	maxOpen = 64
	// opening is how many shards are opened or looked at at a time: each waits for replies of a file server.
	opening = 16
)

// slot is where a Checkpoint has one of its shards open.
type slot struct {
	mu    sync.Mutex // held while it is being opened
	users int
	open  *openShard   // nil: closed
	stale []*openShard // files that were replaced, which users may still be reading
}

// close closes all files. Nobody uses them.
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

// acquire opens shard i, unless it is open. It must be released.
func (c *Checkpoint) acquire(ctx context.Context, i int) (*openShard, error) {
	s := &c.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		err := again(func() (err error) { s.open, err = c.openWithBase(ctx, i); return err })
		if err != nil {
			return nil, err
		}
	}
	s.users++
	return s.open, nil
}

// release closes what is stale, and a shard that is not kept open, when nobody uses it any more.
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

// retire has shard i opened anew by whoever needs it next, if was is what is open.
func (c *Checkpoint) retire(i int, was *openShard) {
	s := &c.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == was {
		s.open, s.stale = nil, append(s.stale, was)
	}
}

// use runs f on shard i; once more, on newly opened files, where those that were open are stale.
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

// openAll opens shards, several at a time. They must be released, unless there is an error.
func (c *Checkpoint) openAll(ctx context.Context, shards []int) error {
	var mu sync.Mutex
	var opened []int
	err := inParallel(ctx, opening, shards, func(ctx context.Context, i int) error {
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
