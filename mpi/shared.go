package mpi

import (
	"errors"

	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/shm"
)

// nodeWaiter is how a group's shared memory waits.
type nodeWaiter struct{ core *core }

// Entered implements shm.Waiter.
func (w nodeWaiter) Entered() error { return w.core.book() }

// Await implements shm.Waiter.
func (w nodeWaiter) Await(ready func() bool) error { return w.core.group.Await(w.core.port.ctx, ready) }

// Notify implements shm.Waiter.
func (w nodeWaiter) Notify() { w.core.group.Notify() }

// shared runs what goes through the memory that all ranks share.
func (k *core) shared(run func(w shm.Waiter, stamp shm.Stamp) error, call engine.Call) error {
	if err := run(nodeWaiter{k}, stampOf(call)); err != nil {
		return k.sharedError(call, err)
	}
	return nil
}

// sharedError words what the shared memory found.
func (k *core) sharedError(call engine.Call, err error) error {
	var stamp *shm.StampError
	if errors.As(err, &stamp) {
		there := stamp.Rank
		if h := k.hierarchy; h != nil {
			there += k.group.Rank() - h.local // the first rank of this machine
		}
		return engine.Mismatch(k.group.Rank(), there, call, callOf(stamp.Stamp), describe, describeFully)
	}
	return err
}
