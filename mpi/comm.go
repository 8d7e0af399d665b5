package mpi

import (
	"errors"
	"fmt"
	"slices"

	"ddpbatch/mpi/internal/engine"
)

// Comm is one rank's place in a group of processes.
//
// All ranks must call the same collectives in the same order. Calls from several goroutines on one rank run one after another, in the order
// in which they are made. That order, too, must be the same on all ranks, so it is best to call collectives from one goroutine. The order
// of messages, and of collectives of other Comms, does not matter.
//
// After its first failure a Comm is broken, and every later call returns that failure: nobody can know what other ranks have got of the
// collective. The other ranks are notified, and fail with the same error. Only Shrink and Close are left. Other Comms continue, unless one
// of their ranks has died.
type Comm struct {
	core      *core
	algorithm string // set by Using, or empty
}

// ErrClosed is the error of calls on a closed Comm.
var ErrClosed = engine.ErrClosed

// The errors that a collective's error may match, besides ctx's own errors.
var (
	ErrMismatch  = engine.ErrMismatch  // ranks called different collectives; the error shows both calls
	ErrTimeout   = engine.ErrTimeout   // a rank made no progress for Config.Timeout
	ErrLost      = engine.ErrLost      // a rank's process or connection died
	ErrLeft      = engine.ErrLeft      // a rank has closed its Comm
	ErrAborted   = engine.ErrAborted   // another rank gave up for its own reasons, such as the end of its context
	ErrProtocol  = engine.ErrProtocol  // a rank sent something that a rank of this version never sends
	ErrTruncated = engine.ErrTruncated // a message was longer than the receiver's buffer
)

// PeerError is a failure of one rank, or while waiting for it.
type PeerError = engine.PeerError

// AbortError is the failure of another rank, as that rank reported it.
type AbortError = engine.AbortError

// MismatchError says that two ranks made different calls.
type MismatchError = engine.MismatchError

// PanicError is the error of a call whose Op, made by NewOp, has panicked. The Comm is broken, and the other ranks are notified.
type PanicError struct {
	Value any    // the value of the panic
	Stack []byte // the stack of its goroutine
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Rank returns this process's rank in the group, from 0.
func (c *Comm) Rank() int { return c.core.port.Rank() }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.core.port.Size() }

// Backend names what carries data between the ranks of the Comm, as torch.distributed.get_backend does for a process group. It is the same
// on all of them:
//
//	"shm"      memory that all of them share
//	"tcp"      TCP connections, between machines or between ranks of one machine that do not share memory
//	"ucx"      RDMA by UCX, in the same places
//	"shm+tcp"  memory within each machine, TCP between machines
//	"shm+ucx"  memory within each machine, RDMA by UCX between machines
//	"local"    channels within one process, after InitLocal
//	"self"     nothing: there is no other rank
//
// [Config.Transport] says what it may be.
func (c *Comm) Backend() string {
	k := c.core
	switch {
	case len(k.members) == 1:
		return "self"
	case k.world.sockets == nil:
		return "local"
	}
	machines := make(map[int]bool)
	for _, rank := range k.members {
		machines[k.world.machines[rank]] = true
	}
	between := "tcp"
	if k.world.sockets.UsesUCX() {
		between = "ucx"
	}
	switch len(machines) {
	case 1:
		return "shm"
	case len(k.members):
		return between
	}
	return "shm+" + between
}

// Network says more about "ucx": its version, transports and devices, such as "UCX 1.13.1 by rc_mlx5/mlx5_0:1". It is empty if no data of
// the world goes through UCX.
func (c *Comm) Network() string { return c.core.world.sockets.Network() }

// Using returns the same Comm with one algorithm for all of its collectives, by name, instead of the one that is predicted to be the
// fastest. A call returns an error if its collective does not have an algorithm of that name, or if the call must be deterministic and the
// algorithm is not canonical. All ranks must name the same one.
func (c *Comm) Using(algorithm string) *Comm { return &Comm{core: c.core, algorithm: algorithm} }

// IsInitialized reports whether c can still be used: it is not nil, not closed and not broken.
func (c *Comm) IsInitialized() bool { return c != nil && !c.core.failed.Load() }

// Err returns the failure that has broken the Comm, or nil.
func (c *Comm) Err() error { return c.core.broken() }

// Close leaves the group. The other ranks may continue with calls that do not need this rank; a collective that needs it fails there.
// Requests under way fail. If the last call returned before other ranks had made it (see Broadcast), Close waits for them, at most for
// Config.Timeout. It returns an error if one of them does not come or has made another call. A second Close ends that wait.
//
// Close of the Comm that Init has made also closes all Comms made from it, and ends the connections. A rank that has served the store of
// InitEnv then waits up to 10 seconds for the others to leave, unless the Comm is broken.
func (c *Comm) Close() error {
	k := c.core
	unheard := k.catchUpLast()
	k.mu.Lock()
	before := k.err
	k.err = ErrClosed
	k.failed.Store(true)
	end := k.end
	k.mu.Unlock()
	if before == ErrClosed {
		return unheard
	}
	if end != nil {
		end()
	}
	if k.group != nil {
		k.group.Close()
	}
	// Calls that run or wait fail now. After that, nothing uses the memory.
	freed := k.start(&queuedCall{do: k.releaseMemory})
	<-freed.done
	errs := []error{unheard, freed.err}
	if k.owner {
		errs = append(errs, k.world.close(before != nil))
	} else {
		k.world.removeChild(k)
	}
	return errors.Join(errs...)
}

// Ranks returns the world ranks (those of the Comm that Init made) of the Comm's ranks, in the Comm's order.
func (c *Comm) Ranks() []int { return slices.Clone(c.core.members) }
