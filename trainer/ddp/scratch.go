package ddp

import (
	"context"
	"fmt"

	"ddpbatch/mpi"
)

// scratch is a buffer of a Hook for one bucket at a time, in memory that collectives work on fastest.
type scratch[T mpi.Number] struct {
	data []T
}

// grow makes room for n elements. It is collective, with the same n on all ranks. What was there may be lost.
func (s *scratch[T]) grow(ctx context.Context, comm *mpi.Comm, n int) error {
	if n <= len(s.data) {
		return nil // memory of Alloc cannot be given back: keep what there is
	}
	data, err := mpi.Alloc[T](ctx, comm, n)
	if err != nil {
		return fmt.Errorf("allocate a buffer of the communication hook: %w", err)
	}
	s.data = data
	return nil
}

// longest is the length of the longest bucket.
func longest(buckets []*Bucket) int {
	n := 0
	for _, b := range buckets {
		n = max(n, len(b.Data))
	}
	return n
}
