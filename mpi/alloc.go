package mpi

import (
	"context"
	"errors"
	"fmt"
	"unsafe"
)

// Alloc gives a buffer of n elements, all zero, that collectives of c work on fastest: where the ranks share
// memory, they read and write each other's, and nothing is copied. It is a collective call, for the beginning of a program: there is
// no way to give a buffer back, and some ten thousands are all that a process has room for. n may differ between ranks. The
// buffer is gone when c is closed: nothing may touch it from then on. After a call with it has failed, other ranks may still write
// to it until the call has failed there, too.
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
	return sliceOf[T](memory), nil
}

// maxAlloc is the longest buffer of Alloc, in bytes.
const maxAlloc = 1 << 40

// alloc returns nil where ranks share no memory. A rank reads and writes that of the others on its machine.
func (k *core) alloc(ctx context.Context, n, width int, wrong error) (own []byte, err error) {
	err = k.alone(ctx, allocCall.String(), func(ctx context.Context) error {
		// Every rank hears here of arguments that are wrong on one.
		if err := k.execute(ctx, &operation{kind: allocCall, wrong: wrong}); err != nil {
			return err
		}
		node, first, last := k.node, 0, len(k.members)
		if h := k.hierarchy; h != nil {
			node, first = h.node, k.group.Rank()-h.local
			last = first + h.width
		}
		if node == nil {
			return nil
		}
		size := n * width
		segments, err := k.shareSegments(ctx, max(size, 1), first, last)
		if err != nil || segments == nil {
			return err
		}
		k.memory = append(k.memory, segments...)
		own = segments[k.group.Rank()-first].Bytes()[:size:size]
		return node.Register(segments)
	})
	return own, err
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
