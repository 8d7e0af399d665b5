package main

import (
	"context"

	"ddpbatch/mpi"
)

// benchCall is a collective on buffers of one size.
type benchCall struct {
	fill  func(iteration int)             // puts this rank's pattern in, and what is wrong where results go
	run   func(ctx context.Context) error // the call, and nothing beside it
	wrong func(iteration int) int64       // elements of this rank's result that are not what fill(iteration) must give
}

// calls makes the calls of every collective that moves elements.
func (s *benchBuffers[T]) calls() map[string]func(count int) benchCall {
	return map[string]func(int) benchCall{
		"allreduce": s.allReduce, "reduce": s.reduce, "reducescatter": s.reduceScatter, "scan": s.scan, "exscan": s.exscan,
		"broadcast": s.broadcast, "allgather": s.allGather, "gather": s.gather, "scatter": s.scatter, "alltoall": s.allToAll,
		"pingpong": s.pingPong,
	}
}

func (s *benchBuffers[T]) allReduce(count int) benchCall {
	b, buf := s.b, s.out[:count]
	return benchCall{
		fill:  func(iteration int) { spread(buf, s.own(b.rank, iteration), 0) },
		run:   func(ctx context.Context) error { return mpi.AllReduce(ctx, b.timed, buf, b.o.op.mpi) },
		wrong: func(iteration int) int64 { return differ(buf, s.reduced(b.ranks-1, iteration), 0) },
	}
}

func (s *benchBuffers[T]) reduce(count int) benchCall {
	b, buf := s.b, s.out[:count]
	return benchCall{
		fill: func(iteration int) { spread(buf, s.own(b.rank, iteration), 0) },
		run:  func(ctx context.Context) error { return mpi.Reduce(ctx, b.timed, buf, 0, b.o.op.mpi) },
		wrong: func(iteration int) int64 {
			if b.rank != 0 {
				return 0
			}
			return differ(buf, s.reduced(b.ranks-1, iteration), 0)
		},
	}
}

func (s *benchBuffers[T]) reduceScatter(count int) benchCall {
	b, out, in := s.b, s.out[:count], s.in[:count*s.b.ranks]
	return benchCall{
		fill: func(iteration int) {
			spread(in, s.own(b.rank, iteration), 0)
			s.spoil(out)
		},
		run:   func(ctx context.Context) error { return mpi.ReduceScatter(ctx, b.timed, out, in, b.o.op.mpi) },
		wrong: func(iteration int) int64 { return differ(out, s.reduced(b.ranks-1, iteration), b.rank*count) },
	}
}

func (s *benchBuffers[T]) scan(count int) benchCall {
	b, buf := s.b, s.out[:count]
	return benchCall{
		fill:  func(iteration int) { spread(buf, s.own(b.rank, iteration), 0) },
		run:   func(ctx context.Context) error { return mpi.Scan(ctx, b.timed, buf, b.o.op.mpi) },
		wrong: func(iteration int) int64 { return differ(buf, s.reduced(b.rank, iteration), 0) },
	}
}

func (s *benchBuffers[T]) exscan(count int) benchCall {
	b, buf := s.b, s.out[:count]
	return benchCall{
		fill: func(iteration int) { spread(buf, s.own(b.rank, iteration), 0) },
		run:  func(ctx context.Context) error { return mpi.Exscan(ctx, b.timed, buf, b.o.op.mpi) },
		wrong: func(iteration int) int64 {
			if b.rank == 0 { // its buffer is not changed
				return differ(buf, s.own(0, iteration), 0)
			}
			return differ(buf, s.reduced(b.rank-1, iteration), 0)
		},
	}
}

// barrierCall moves nothing, so nothing can be wrong.
func barrierCall(b *benchRank) benchCall {
	return benchCall{
		fill:  func(int) {},
		run:   b.timed.Barrier,
		wrong: func(int) int64 { return 0 },
	}
}
