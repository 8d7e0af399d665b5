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

// Alloc gives a buffer of n elements, all zero, that collectives of c work on fastest: where the ranks share
// memory, they read and write each other's, and where data goes by UCX, network cards do, so that long messages are not copied. It is a
// collective call, for the beginning of a program: there is no way to give a buffer back, some ten thousands are all that a process has
// room for, and the network cards keep theirs until the world is closed. n may differ between ranks. The buffer is gone when c is closed:
// nothing may touch it from then on. After a call with it has failed, other ranks may still read and write it until the call has failed
// there, too, and a network card what had begun to arrive.
func Alloc[T Number](ctx context.Context, c *Comm, n int) ([]T, error) {
	var zero T
	width := int(unsafe.Sizeof(zero))
	var wrong error
	if n < 0 || n > maxAlloc/width {
		wrong = fmt.Errorf("there is no buffer of %d elements of %d bytes", n, width)
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

// maxAlloc is the longest buffer of Alloc, in bytes.
const maxAlloc = 1 << 40

// alloc returns nil where no memory is better than Go's. A rank reads and writes that of the others on its machine.
func (k *core) alloc(ctx context.Context, n, width int, wrong error) (own []byte, err error) {
	err = k.exclusively(ctx, allocCall.String(), func(ctx context.Context) error {
		// Every rank hears here of arguments that are wrong on one.
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

// allocDirect is memory that the network card reads and writes, or nil: calls work with Go's, too, so this rank's trouble is nobody else's.
func (k *core) allocDirect(size int) []byte {
	if !k.spread {
		return nil
	}
	memory, err := k.world.sockets.Alloc(max(size, 1))
	if err != nil {
		k.world.log.Warn("messages are copied", "err", err)
	}
	if memory == nil {
		return nil
	}
	return memory[:size:size]
}

// keep closes segments with k, but for this rank's own where the network card reads and writes it, too: then the sockets do.
func (k *core) keep(segments []*shm.Segment, local int) {
	if !k.spread {
		k.memory = append(k.memory, segments...)
		return
	}
	own := segments[local]
	theirs, err := k.world.sockets.Register(own.Bytes(), func() { closeSegments(own) })
	if err != nil {
		k.world.log.Warn("messages to other machines are copied", "err", err)
	}
	for i, segment := range segments {
		if i != local || !theirs {
			k.memory = append(k.memory, segment)
		}
	}
}

// share lays memory under a group of the same ranks, if they are all on one machine and all manage to.
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

// shareSegments makes a segment of size bytes and opens those of the other ranks from first to before last, whose sizes may
// differ. It returns nil on all ranks of the group if one of them could not. readable tells that each of these ranks can also read the
// others' own memory.
func (k *core) shareSegments(ctx context.Context, size, first, last int) (segments []*shm.Segment, readable bool, err error) {
	own, err := shm.Create(size)
	var handle [shm.HandleSize]byte
	if err == nil {
		handle = own.Handle().Encode()
	} else {
		k.world.log.Warn("no shared memory", "err", err)
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
		k.world.log.Debug("ranks of one machine do not share memory", "err", err)
		vote = notOpened
	case !slices.ContainsFunc(segments, func(s *shm.Segment) bool { return !s.ReadsOwner() }):
		vote = readsOwners
	}
	votes, err := k.allGatherBytes(ctx, []byte{vote})
	lacks := func(least byte) func([]byte) bool { return func(vote []byte) bool { return vote[0] < least } }
	if err == nil && !slices.ContainsFunc(votes, lacks(opened)) { // then its file is of no more use
		return segments, !slices.ContainsFunc(votes[first:last], lacks(readsOwners)), own.CloseFile()
	}
	closeSegments(segments...)
	if err == nil && k.world.config.Transport == "shm" {
		err = errors.New("the ranks are to share memory, and some of them cannot: is there enough of it, and room for open files?")
	}
	return nil, false, err
}

// What a rank says of the segments of the others on its machine.
const (
	notOpened = iota
	opened
	readsOwners // and of their own memory
)

// openSegments opens what the handles stand for; the rank's own is there. On an error it closes all.
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

// releaseMemory lets go of all shared memory. Nothing may run.
func (k *core) releaseMemory() error {
	var errs []error
	for _, s := range k.memory {
		errs = append(errs, s.Close())
	}
	k.memory, k.node, k.hierarchy = nil, nil, nil
	return errors.Join(errs...)
}

// nodeWaiter is how a group's shared memory waits.
type nodeWaiter struct{ core *core }

// Entered implements shm.Waiter.
func (w nodeWaiter) Entered() error { return w.core.enterAndNotify() }

// Await implements shm.Waiter.
func (w nodeWaiter) Await(ready func() bool) error { return w.core.group.Await(w.core.port.ctx, ready) }

// Notify implements shm.Waiter.
func (w nodeWaiter) Notify() { w.core.group.Notify() }

// sharedError words what the shared memory found, if that is anything.
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
