package main

import (
	"context"

	"ddpbatch/mpi"
)

func (s *benchBuffers[T]) broadcast(count int) benchCall {
	b, buf := s.b, s.out[:count]
	return benchCall{
		fill: func(iteration int) {
			s.spoil(buf)
			if b.rank == 0 {
				spread(buf, s.own(0, iteration), 0)
			}
		},
		run:   func(ctx context.Context) error { return mpi.Broadcast(ctx, b.timed, buf, 0) },
		wrong: func(iteration int) int64 { return differ(buf, s.own(0, iteration), 0) },
	}
}

func (s *benchBuffers[T]) allGather(count int) benchCall {
	b, out, in := s.b, s.out[:count*s.b.ranks], s.in[:count]
	return benchCall{
		fill: func(iteration int) {
			spread(in, s.own(b.rank, iteration), 0)
			s.spoil(out)
		},
		run:   func(ctx context.Context) error { return mpi.AllGather(ctx, b.timed, out, in) },
		wrong: func(iteration int) int64 { return s.wrongBlocks(out, count, 0, iteration) },
	}
}

func (s *benchBuffers[T]) gather(count int) benchCall {
	b, out, in := s.b, s.out[:count*s.b.ranks], s.in[:count]
	return benchCall{
		fill: func(iteration int) {
			spread(in, s.own(b.rank, iteration), 0)
			s.spoil(out)
		},
		run: func(ctx context.Context) error { return mpi.Gather(ctx, b.timed, out, in, 0) },
		wrong: func(iteration int) int64 {
			if b.rank != 0 {
				return 0
			}
			return s.wrongBlocks(out, count, 0, iteration)
		},
	}
}

// scatter's root has one long pattern, of which each rank gets its block; what the others have in goes nowhere.
func (s *benchBuffers[T]) scatter(count int) benchCall {
	b, out, in := s.b, s.out[:count], s.in[:count*s.b.ranks]
	return benchCall{
		fill: func(iteration int) {
			spread(in, s.own(b.rank, iteration), 0)
			s.spoil(out)
		},
		run:   func(ctx context.Context) error { return mpi.Scatter(ctx, b.timed, out, in, 0) },
		wrong: func(iteration int) int64 { return differ(out, s.own(0, iteration), b.rank*count) },
	}
}

func (s *benchBuffers[T]) allToAll(count int) benchCall {
	b, out, in := s.b, s.out[:count*s.b.ranks], s.in[:count*s.b.ranks]
	return benchCall{
		fill: func(iteration int) {
			spread(in, s.own(b.rank, iteration), 0)
			s.spoil(out)
		},
		run:   func(ctx context.Context) error { return mpi.AllToAll(ctx, b.timed, out, in) },
		wrong: func(iteration int) int64 { return s.wrongBlocks(out, count, b.rank*count, iteration) },
	}
}

// pingPong goes from rank 0 to rank 1 and back; the others have nothing to do.
func (s *benchBuffers[T]) pingPong(count int) benchCall {
	b, out, in := s.b, s.out[:count], s.in[:count]
	return benchCall{
		fill: func(iteration int) {
			spread(in, s.own(b.rank, iteration), 0)
			s.spoil(out)
		},
		run: func(ctx context.Context) (err error) {
			switch b.rank {
			case 0:
				if err = mpi.Send(ctx, b.timed, in, 1, 0); err == nil {
					_, err = mpi.Recv(ctx, b.timed, out, 1, 0)
				}
			case 1:
				if _, err = mpi.Recv(ctx, b.timed, out, 0, 0); err == nil {
					err = mpi.Send(ctx, b.timed, out, 0, 0)
				}
			}
			return err
		},
		wrong: func(iteration int) int64 {
			if b.rank > 1 {
				return 0
			}
			return differ(out, s.own(0, iteration), 0)
		},
	}
}

// wrongBlocks counts what is wrong in blocks of count elements, one of each rank, which began at its element at.
func (s *benchBuffers[T]) wrongBlocks(buf []T, count, at, iteration int) (wrong int64) {
	for rank := range s.b.ranks {
		wrong += differ(buf[rank*count:(rank+1)*count], s.own(rank, iteration), at)
	}
	return wrong
}
