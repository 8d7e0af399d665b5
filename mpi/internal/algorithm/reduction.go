package algorithm

import "ddpbatch/mpi/internal/element"

// Reduction is how buffers are combined.
type Reduction struct {
	Kernel element.Kernel
	Size   int // bytes of an element; no buffer is cut within one
}
