package mpi

import (
	"errors"
	"fmt"
	"slices"

	"ddpbatch/mpi/internal/engine"
)

// Comm is one rank's place in a group of processes.
//
// All ranks must call the same collectives in the same order. Calls of several goroutines on one rank
// follow one another in the order in which they come: that order, too, must be the same everywhere, which is
// best left to one goroutine. Messages, and collectives of other Comms, are not bound to it.
//
// After its first failure a Comm is broken, and every later call returns that
// failure: what other ranks have got of the collective cannot be known. The others are
// told, and fail with it. What is left to do is Shrink or Close. Other Comms go on, unless
// a rank of theirs has died.
type Comm struct {
	core      *core
	algorithm string // that of Using, or empty
}

// ErrClosed is what calls on a closed Comm return.
var ErrClosed = engine.ErrClosed

// What a collective's error may match, besides ctx's own errors.
var (
	ErrMismatch  = engine.ErrMismatch  // ranks called different collectives; the error shows both calls
	ErrTimeout   = engine.ErrTimeout   // a rank made no progress for Config.Timeout
	ErrLost      = engine.ErrLost      // a rank's process or connection died
	ErrLeft      = engine.ErrLeft      // a rank has closed its Comm
	ErrAborted   = engine.ErrAborted   // another rank gave up for reasons of its own, such as its context's end
	ErrProtocol  = engine.ErrProtocol  // a rank sent what no rank of this version sends
	ErrTruncated = engine.ErrTruncated // a message was longer than the buffer for it
)

// PeerError is a failure of, or while waiting for, one rank.
type PeerError = engine.PeerError

// AbortError is the failure of another rank, as that rank told it.
type AbortError = engine.AbortError

// MismatchError says that two ranks made different calls.
type MismatchError = engine.MismatchError

// PanicError is what a call returns whose user's operation has panicked. The Comm is broken, and the other ranks are told.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of its goroutine
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Rank is this process's place in the group, from 0.
func (c *Comm) Rank() int { return c.core.port.Rank() }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.core.port.Size() }

// Backend is what data goes through between the ranks of the Comm, as torch.distributed.get_backend tells it of a process group. It is
// the same on all of them:
//
//	"shm"      memory that all of them share
//	"tcp"      TCP connections, between machines or where ranks of one share no memory
//	"ucx"      RDMA by UCX, in the same places
//	"shm+tcp"  memory within each machine, TCP between machines
//	"shm+ucx"  memory within each machine, RDMA by UCX between machines
//	"local"    channels within one process, of InitLocal
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

// Network says more of "ucx": which version, transports and devices, such as "UCX 1.13.1 by rc_mlx5/mlx5_0:1". It is empty where no data of
// the world goes through UCX.
func (c *Comm) Network() string { return c.core.world.sockets.Network() }

// Using is the same Comm with one algorithm for all of its collectives, by its name, instead of the one that is
// predicted to be fastest. Calls whose collective has none of that name return an error, as do those that are to be
// deterministic with one that is not canonical. All ranks must use the same.
func (c *Comm) Using(algorithm string) *Comm { return &Comm{core: c.core, algorithm: algorithm} }

// IsInitialized reports whether c can still be used: it is neither nil nor closed nor broken.
func (c *Comm) IsInitialized() bool { return c != nil && !c.core.failed.Load() }

// Err is the failure that has broken the Comm, or nil.
func (c *Comm) Err() error { return c.core.broken() }

// Close leaves the group. The other ranks may go on with what does not need
// this one; a collective that does fails there. Requests that are under way fail. Where the last call has returned before others had
// come to it (see Broadcast), Close waits for them, for Config.Timeout at most, and returns the error if one does not come, or has made
// another call; a second Close ends that wait.
//
// The Comm that Init has made also closes all that were made of it, and ends the connections. A rank that has served the
// store of InitEnv waits for the others to leave, up to 10 seconds, unless the
// Comm is broken.
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
	// What runs or waits fails now; then nothing does any more.
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

// Ranks is the ranks of the world, that of Init, that the Comm is made of, in the order of its own.
func (c *Comm) Ranks() []int { return slices.Clone(c.core.members) }
