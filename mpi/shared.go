package mpi

import (
	"errors"

	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/shm"
)

// nodeWaiter is how a group's shared memory waits.
type nodeWaiter struct{ core *core }

// Entered implements shm.Waiter.
func (w nodeWaiter) Entered() { w.core.bookAndNotify() }

// Await implements shm.Waiter.
func (w nodeWaiter) Await(ready func() bool) error { return w.core.group.Await(w.core.port.ctx, ready) }

// Notify implements shm.Waiter.
func (w nodeWaiter) Notify() { w.core.group.Notify() }

// sharedError words what the shared memory found, if that is anything.
func (k *core) sharedError(err error) error {
	if err == nil {
		return nil
	}
	var stamp *shm.StampError
	if errors.As(err, &stamp) {
		there := stamp.Rank
		if h := k.hierarchy; h != nil {
			there += k.group.Rank() - h.local // the first rank of this machine
		}
		return engine.Mismatch(k.group.Rank(), there, k.call, callOf(stamp.Stamp), describe, describeFully)
	}
	return err
}
