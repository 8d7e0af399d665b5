package shm

import (
	"fmt"

	"ddpbatch/mpi/internal/element"
)

// Reduction is how buffers are combined.
type Reduction struct {
	Kernel  element.Kernel
	Kernel2 element.Kernel2 // the same; nil: the result of Kernel is copied
	Size    int             // bytes of an element: a power of 2 up to 64
}

// check refuses element sizes that a cut between cache lines could cut, and buffers that end within one.
func (r *Reduction) check(length int) error {
	if r.Size <= 0 || line%r.Size != 0 {
		return fmt.Errorf("elements of %d bytes", r.Size)
	}
	if length%r.Size != 0 {
		return fmt.Errorf("%d bytes of elements of %d", length, r.Size)
	}
	return nil
}
