package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/shm"
)

// Alloc returns a buffer of n elements, all zero, with which collectives of c are fastest. Ranks that share memory read and write each
// other's buffers in place. If data goes by UCX, network cards read and write the buffer, so that long messages are not copied.
//
// Alloc is a collective call. Call it at the beginning of a program: a buffer cannot be released, a process has room for some ten thousand
// of them, and the network cards keep theirs until the world is closed. n may differ between ranks.
//
// The buffer is gone when c is closed, and nothing may use it after that. If a call with it has failed, other ranks may still read and
// write the buffer until the call has failed on them, too, and a network card may still write data that had begun to arrive.
func Alloc[T Number](ctx context.Context, c *Comm, n int) ([]T, error) {
	var zero T
	width := int(unsafe.Sizeof(zero))
	var wrong error
	if n < 0 || n > maxAlloc/width {
		wrong = fmt.Errorf("n must be from 0 to %d for elements of %d bytes, got %d", maxAlloc/width, width, n)
	}
	memory, err := c.core.alloc(ctx, n, width, wrong)
	if err != nil {
		return nil, fmt.Errorf("alloc %d elements: %w", n, err)
	}
	if memory == nil {
		return make([]T, n), nil
	}
	return element.View[T](memory), nil
}

// maxAlloc is the largest length of a buffer of Alloc, in bytes.
const maxAlloc = 1 << 40

// alloc returns nil if no memory is better than Go's. The buffer is in memory that the other ranks of the machine read and write.
func (k *core) alloc(ctx context.Context, n, width int, wrong error) (own []byte, err error) {
	err = k.exclusively(ctx, allocCall.String(), func(ctx context.Context) error {
		// If an argument is wrong on one rank, every rank gets an error here.
		if err := k.execute(ctx, &operation{kind: allocCall, wrong: wrong}); err != nil {
			return err
		}
		node, first, last := k.node, 0, len(k.members)
		if h := k.hierarchy; h != nil {
			node, first = h.node, k.group.Rank()-h.local
			last = first + h.width
		}
		size := n * width
		if node == nil {
			own = k.allocDirect(size)
			return nil
		}
		segments, _, err := k.shareSegments(ctx, max(size, 1), first, last)
		if err != nil {
			return err
		}
		if segments == nil {
			own = k.allocDirect(size)
			return nil
		}
		local := k.group.Rank() - first
		own = segments[local].Bytes()[:size:size]
		k.keep(segments, local)
		return node.Register(segments)
	})
	return own, err
}

// allocDirect returns memory that the network card reads and writes, or nil. Calls work with Go's memory, too, so a failure on this rank
// does not affect the others.
func (k *core) allocDirect(size int) []byte {
	if !k.spread {
		return nil
	}
	memory, err := k.world.sockets.Alloc(max(size, 1))
	if err != nil {
		k.world.log.Warn("no memory for the network card; messages are copied", "err", err)
	}
	if memory == nil {
		return nil
	}
	return memory[:size:size]
}

// keep makes k close the segments. If the network card also uses this rank's own segment, the sockets close that one instead.
func (k *core) keep(segments []*shm.Segment, local int) {
	if !k.spread {
		k.memory = append(k.memory, segments...)
		return
	}
	own := segments[local]
	theirs, err := k.world.sockets.Register(own.Bytes(), func() { closeSegments(own) })
	if err != nil {
		k.world.log.Warn("the network card cannot use shared memory; messages to other machines are copied", "err", err)
	}
	for i, segment := range segments {
		if i != local || !theirs {
			k.memory = append(k.memory, segment)
		}
	}
}

// share makes shared memory for target, a group of the same ranks, if all of them are on one machine and it works on all.
func (k *core) share(ctx context.Context, target *core) error {
	machines := k.world.machines
	first := machines[k.members[0]]
	target.spread = slices.ContainsFunc(k.members, func(rank int) bool { return machines[rank] != first })
	if target.spread {
		return k.shareMachines(ctx, target)
	}
	if len(k.members) < 2 || len(k.members) > shm.MaxRanks {
		return nil
	}
	areas, readable, err := k.shareSegments(ctx, shm.AreaSize, 0, len(k.members))
	if err != nil || areas == nil {
		return err
	}
	target.memory = append(target.memory, areas...)
	target.node, err = shm.NewNode(k.group.Rank(), areas, readable)
	return err
}

// shareSegments makes a segment of size bytes, and opens those of the other ranks from first to before last. Their sizes may differ. It
// returns nil on all ranks of the group if it failed on one of them. readable reports whether each of these ranks can also read the memory
// of the others outside the segments.
func (k *core) shareSegments(ctx context.Context, size, first, last int) (segments []*shm.Segment, readable bool, err error) {
	own, err := shm.Create(size)
	var handle [shm.HandleSize]byte
	if err == nil {
		handle = own.Handle().Encode()
	} else {
		k.world.log.Warn("cannot create shared memory", "err", err)
	}
	all, err := k.allGatherBytes(ctx, handle[:])
	if err != nil {
		closeSegments(own)
		return nil, false, err
	}
	segments, err = openSegments(all[first:last], k.group.Rank()-first, own)
	vote := byte(opened)
	switch {
	case err != nil:
		k.world.log.Debug("cannot open the shared memory of ranks on this machine", "err", err)
		vote = notOpened
	case !slices.ContainsFunc(segments, func(s *shm.Segment) bool { return !s.ReadsOwner() }):
		vote = readsOwners
	}
	votes, err := k.allGatherBytes(ctx, []byte{vote})
	lacks := func(least byte) func([]byte) bool { return func(vote []byte) bool { return vote[0] < least } }
	if err == nil && !slices.ContainsFunc(votes, lacks(opened)) { // then the segment's file is not needed any more
		return segments, !slices.ContainsFunc(votes[first:last], lacks(readsOwners)), own.CloseFile()
	}
	closeSegments(segments...)
	if err == nil && k.world.config.Transport == "shm" {
		err = errors.New("transport is \"shm\", but some ranks cannot share memory: check the free memory and the limit of open files")
	}
	return nil, false, err
}

// A rank's result of opening the segments of the other ranks on its machine.
const (
	notOpened = iota
	opened
	readsOwners // and it can read the other ranks' own memory
)

// openSegments opens the segments of the handles. own is the rank's own segment. If one fails, it closes all of them.
func openSegments(handles [][]byte, rank int, own *shm.Segment) ([]*shm.Segment, error) {
	segments := make([]*shm.Segment, len(handles))
	segments[rank] = own
	for i, encoded := range handles {
		if i == rank && own != nil {
			continue
		}
		h, err := shm.DecodeHandle(encoded)
		if err == nil {
			segments[i], err = shm.Open(h)
		}
		if err != nil {
			closeSegments(segments...)
			return nil, err
		}
	}
	return segments, nil
}

func closeSegments(segments ...*shm.Segment) {
	for _, s := range segments {
		if s != nil {
			s.Close()
		}
	}
}

// releaseMemory closes all shared memory. No call may be running.
func (k *core) releaseMemory() error {
	var errs []error
	for _, s := range k.memory {
		errs = append(errs, s.Close())
	}
	k.memory, k.node, k.hierarchy = nil, nil, nil
	return errors.Join(errs...)
}

// nodeWaiter implements shm.Waiter for a group's shared memory.
type nodeWaiter struct{ core *core }

// Entered implements shm.Waiter.
func (w nodeWaiter) Entered() error { return w.core.enterAndNotify() }

// Await implements shm.Waiter.
func (w nodeWaiter) Await(ready func() bool) error { return w.core.group.Await(w.core.port.ctx, ready) }

// Notify implements shm.Waiter.
func (w nodeWaiter) Notify() { w.core.group.Notify() }

// sharedError turns an error of shared memory into one of a call. For nil it returns nil.
func (k *core) sharedError(err error) error {
	if err == nil {
		return nil
	}
	if differ, ok := errors.AsType[*shm.FingerprintError](err); ok {
		there := differ.Rank
		if h := k.hierarchy; h != nil {
			there += k.group.Rank() - h.local // the first rank of this machine
		}
		return engine.Mismatch(k.group.Rank(), there, callOf(differ.Own), callOf(differ.Fingerprint), describe, describeFully)
	}
	if differ, ok := errors.AsType[*shm.LengthError](err); ok {
		return engine.MismatchOfLengths(k.group.Rank(), differ.Rank, k.call, differ.Due, differ.Sent, describe)
	}
	return err
}
