package mpi

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"ddpbatch/mpi/transport"
)

// Comm is one rank's place in a group of processes.
//
// Its methods, and the collectives called with it, are for one goroutine at a
// time; a second one panics. All ranks must call the same
// collectives in the same order.
//
// After its first failure a Comm is broken, and every later call returns that
// failure: what other ranks have got of the collective cannot be known. The others are
// told, and fail with it. All that is left to do is Close.
type Comm struct {
	mesh    transport.Mesh // nil where the world is one rank
	scratch []uint64       // a frame's worth of what arrives to be combined
	busy    atomic.Bool
	seq     uint64
	err     error       // the first failure
	met     *rendezvous // what InitEnv opened, or nil
}

// ErrClosed is what calls on a closed Comm return.
var ErrClosed = errors.New("communicator is closed")

// What a collective's error may match, besides ctx's own errors. The packages of
// these errors word them for one rank; see [transport].
var (
	ErrMismatch = transport.ErrMismatch // ranks called different collectives; the error shows both calls
	ErrTimeout  = transport.ErrTimeout  // a rank made no progress for Config.Timeout
	ErrLost     = transport.ErrLost     // a rank's process or connection died
	ErrLeft     = transport.ErrLeft     // a rank has closed its Comm
	ErrAborted  = transport.ErrAborted  // another rank gave up for reasons of its own, such as its context's end
)

// Self is the communicator of a world of one.
func Self() *Comm { return &Comm{} }

// Rank is this process's place in the group, from 0.
func (c *Comm) Rank() int {
	if c.mesh == nil {
		return 0
	}
	return c.mesh.Rank()
}

// Size is the number of ranks.
func (c *Comm) Size() int {
	if c.mesh == nil {
		return 1
	}
	return c.mesh.Size()
}

// begin starts a collective and numbers it. wrong is what is wrong with the
// caller's arguments; it breaks the Comm too, as the other ranks may have
// begun.
func (c *Comm) begin(ctx context.Context, call *transport.Call, wrong error) error {
	if !c.busy.CompareAndSwap(false, true) {
		panic("mpi: a Comm was used by two goroutines at a time")
	}
	if c.err != nil {
		c.busy.Store(false)
		return c.err
	}
	c.seq++
	call.Seq = c.seq
	err := wrong
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && c.mesh != nil {
		err = c.mesh.Begin(*call)
	}
	if err != nil {
		return c.end(*call, err)
	}
	return nil
}

// end ends the collective that begin began.
func (c *Comm) end(call transport.Call, err error) error {
	if err != nil {
		c.err = fmt.Errorf("%s: %w", describe(call), err)
		if c.mesh != nil {
			c.mesh.Abort(c.err)
			c.release()
		}
		err = c.err
	}
	c.busy.Store(false)
	return err
}

// release makes a broken mesh let go of the frames that it still had to send: the buffer
// that they lie in is the caller's again.
func (c *Comm) release() {
	for rank := range c.Size() {
		if rank != c.Rank() {
			c.mesh.Sent(context.Background(), rank) // does not wait, and its error is known already
		}
	}
}

// Close leaves the group. The other ranks may go on with what does not need
// this one; a collective that does fails there. A rank that has served the
// store of InitEnv waits for the others to leave, up to 10 seconds, unless the
// Comm is broken.
func (c *Comm) Close() error {
	if !c.busy.CompareAndSwap(false, true) {
		panic("mpi: a Comm was closed while a collective ran")
	}
	defer c.busy.Store(false)
	if c.err == ErrClosed {
		return nil
	}
	broken := c.err != nil
	c.err = ErrClosed
	var errs []error
	if c.mesh != nil {
		errs = append(errs, c.mesh.Close())
	}
	switch {
	case c.met == nil:
	case broken:
		errs = append(errs, c.met.abandon())
	default:
		errs = append(errs, c.met.close())
	}
	return errors.Join(errs...)
}
