package mpi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/shm"
	"ddpbatch/mpi/internal/tick"
)

// core is what all views of one Comm share.
type core struct {
	world   *world
	group   *engine.Group // nil in a world of one rank
	members []int         // world ranks, by rank
	owner   bool          // Close ends the world

	// The state of the call that runs. Only the goroutine that has the turn uses it.
	port         port
	node         *shm.Node      // if all ranks are on this machine; or nil
	hierarchy    *hierarchy     // if there are equally many on each of several machines; or nil
	memory       []*shm.Segment // of the node and of Alloc, to be closed
	chosen       runFunc        // the algorithm
	spread       bool           // the group has ranks on several machines
	seq          uint64
	survey       *survey // of Shrink; nil before it
	call         engine.Call
	name         string      // of its algorithm
	recorded     bool        // it is in the recorder,
	recordNumber uint64      // under this number
	owing        atomic.Bool // it ended without waiting for all ranks; what comes next waits for them

	buffers                    buffers
	outBounds, inBounds, parts bounds

	turns turns

	failed atomic.Bool
	mu     sync.Mutex      // guards the fields below
	err    error           // the first failure
	alive  context.Context // ends at Close; made at first use
	end    context.CancelFunc
}

// run makes a collective call and returns when it has ended.
func (c *Comm) run(ctx context.Context, o *operation) error {
	k := c.core
	o.using = c.algorithm
	if !k.turns.take() {
		return k.finish(ctx, k.start(&queuedCall{ctx: ctx, op: *o}))
	}
	defer k.give()
	return k.execute(ctx, o)
}

// execute makes one call. The caller has the turn.
func (k *core) execute(ctx context.Context, o *operation) error {
	k.seq++
	k.recorded = false
	if k.owing.Load() {
		k.owing.Store(false)
	}
	err := o.wrong
	if err == nil && k.failed.Load() {
		err = k.broken()
	}
	if err == nil {
		err = k.choose(o)
	}
	k.call, k.name = o.call(k), o.name
	if err == nil {
		err = k.runProtected(ctx, o)
	}
	if err != nil {
		k.record()
		err = k.fail(k.call, err)
	}
	to := tick.Now()
	k.world.recorder.end(k.recordNumber, err, to)
	if err != nil {
		k.world.writeFlight()
	} else if k.group != nil {
		if len(k.port.later) > 0 || k.node != nil && !k.node.CaughtUp() {
			k.owing.Store(true)
		}
		k.group.End(to)
	}
	return err
}

// runProtected makes execute's call, without the bookkeeping around it. A call that works in shared memory is recorded only when the other
// ranks can see that this rank has made it: they need about as long to see it as the record takes.
//
// An operation made by NewOp may panic, or end its goroutine.
func (k *core) runProtected(ctx context.Context, o *operation) (err error) {
	finished := false
	defer func() {
		switch p := recover().(type) {
		case nil:
			if !finished {
				k.fail(k.call, errors.New("an operation made by NewOp ended the goroutine of the call"))
			}
		case *PanicError:
			err = p
		default: // a bug of this package
			panic(p)
		}
	}()
	err = k.enterAndRun(ctx, o)
	finished = true
	return err
}

func (k *core) enterAndRun(ctx context.Context, o *operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if o.code != sharedCode {
		if err := k.enter(); err != nil {
			return err
		}
	}
	k.port.begin(ctx)
	if err := o.run(k); err != nil {
		return err
	}
	return k.catchUp(o.code == sharedCode)
}

// catchUp waits for the ranks that the previous call did not wait for. It runs at the end of a call, because by then most of them have
// come. If both calls go through shared memory, the node has done this itself.
func (k *core) catchUp(isShared bool) error {
	if len(k.port.earlier) > 0 {
		if err := k.port.catchUp(); err != nil {
			return err
		}
	}
	if k.node == nil || isShared {
		return nil
	}
	return k.sharedError(k.node.CatchUp(nodeWaiter{k}))
}

// catchUpLast waits for the ranks that the last call did not wait for, when no other call will do so. It does not wait for requests under
// way.
func (k *core) catchUpLast() error {
	if k.failed.Load() || !k.owing.Load() || k.turns.queued.Load() > 0 {
		return nil
	}
	if k.turns.take() {
		defer k.give()
		return k.resume()
	}
	return k.finish(context.Background(), k.start(&queuedCall{do: k.resume}))
}

// resume is the part of catchUpLast that runs as a part of the last call. The caller has the turn.
func (k *core) resume() error {
	if !k.owing.Load() {
		return nil
	}
	k.owing.Store(false)
	k.group.Resume()
	k.port.begin(context.Background())
	err := k.catchUp(false)
	to := tick.Now()
	if err != nil {
		err = k.fail(k.call, err)
		k.world.recorder.end(k.recordNumber, err, to)
		k.world.writeFlight()
		return err
	}
	k.group.End(to)
	return nil
}

// enter records the call that runs, if it is not recorded yet, and makes it the group's current call.
func (k *core) enter() error {
	if k.recorded {
		return nil
	}
	now := k.record()
	if k.group == nil {
		return nil
	}
	return k.group.Begin(&k.call, now)
}

// enterAndNotify is enter that also wakes ranks that sleep, so that they see that this rank has made the call.
func (k *core) enterAndNotify() error {
	if k.recorded {
		k.group.Notify()
		return nil
	}
	return k.group.BeginAndNotify(&k.call, k.record())
}

// record records the call that runs, if it is not recorded yet.
func (k *core) record() tick.Count {
	now := tick.Now()
	if !k.recorded {
		k.recorded = true
		k.recordNumber = k.world.recorder.begin(&k.call, k.name, now)
	}
	return now
}

// fail breaks the Comm on all its ranks, and returns the Comm's first failure.
func (k *core) fail(call engine.Call, err error) error {
	return k.breakWith(fmt.Errorf("%s: %w", describe(call), err), err)
}

// breakWith is fail with the text for the failure.
func (k *core) breakWith(worded, err error) error {
	k.mu.Lock()
	first := k.err == nil
	if first {
		k.err = worded
		k.failed.Store(true)
	}
	broken := k.err
	k.mu.Unlock()
	if first && k.group != nil {
		if !errors.Is(err, ErrMismatch) { // that one shows the call
			err = broken
		}
		k.group.Fail(err)
	}
	return broken
}

// broken returns the Comm's first failure, or nil.
func (k *core) broken() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}
