package collbench

import (
	"context"

	"ddpbatch/mpi"
)

// The collectives with blocks of different lengths use the buffers and the checks of those with blocks of equal length, with other
// bounds, and time another call. Only all-to-all has a check of its own.

func (s *buffers[T]) reduceScatterV(count int) timedCall {
	b, counts, call := s.b, s.counts(count), s.reduceScatter(count)
	out, in := s.out[:counts[b.rank]], s.in[:count*b.ranks]
	call.run = func(ctx context.Context) error { return mpi.ReduceScatterV(ctx, b.timed, out, in, counts, b.o.op.mpi) }
	return call
}

func (s *buffers[T]) allGatherV(count int) timedCall {
	b, counts, call := s.b, s.counts(count), s.allGather(count)
	out, in := s.out[:count*b.ranks], s.in[:counts[b.rank]]
	call.run = func(ctx context.Context) error { return mpi.AllGatherV(ctx, b.timed, out, in, counts) }
	return call
}

func (s *buffers[T]) gatherV(count int) timedCall {
	b, counts, call := s.b, s.counts(count), s.gather(count)
	out, in := s.out[:count*b.ranks], s.in[:counts[b.rank]]
	call.run = func(ctx context.Context) error { return mpi.GatherV(ctx, b.timed, out, in, counts, 0) }
	return call
}

func (s *buffers[T]) scatterV(count int) timedCall {
	b, counts, call := s.b, s.counts(count), s.scatter(count)
	out, in := s.out[:counts[b.rank]], s.in[:count*b.ranks]
	call.run = func(ctx context.Context) error { return mpi.ScatterV(ctx, b.timed, out, in, counts, 0) }
	return call
}

// In allToAllV rank r sends rank i as many elements as the block of rank r+i has, modulo the number of ranks. So each rank sends and
// receives as much as the others, and receives from each rank as much as it sends to it.
func (s *buffers[T]) allToAllV(count int) timedCall {
	b, counts := s.b, s.counts(count)
	out, in := s.out[:count*b.ranks], s.in[:count*b.ranks]
	own := turned(counts, b.rank)
	return timedCall{
		fill: s.fill(in, out),
		run:  func(ctx context.Context) error { return mpi.AllToAllV(ctx, b.timed, out, own, in, own) },
		wrong: func(iteration int) int64 {
			from := func(rank int) int { return boundsOf(turned(counts, rank))[b.rank] }
			return s.wrongBlocks(out, boundsOf(own), iteration, from)
		},
	}
}

// counts returns the lengths of the blocks that bounds makes.
func (s *buffers[T]) counts(count int) []int {
	at := s.bounds(count)
	counts := make([]int, s.b.ranks)
	for r := range counts {
		counts[r] = at[r+1] - at[r]
	}
	return counts
}

// turned returns counts rotated so that the one of rank first comes first.
func turned(counts []int, first int) []int {
	return append(counts[first:len(counts):len(counts)], counts[:first]...)
}

// boundsOf returns where blocks of these lengths begin, and where the last one ends.
func boundsOf(counts []int) []int {
	at := make([]int, len(counts)+1)
	for r, n := range counts {
		at[r+1] = at[r] + n
	}
	return at
}
