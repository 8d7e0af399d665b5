package collbench

import (
	"context"
	"slices"

	"ddpbatch/mpi"
)

// buffers are a rank's buffers for the largest size; calls of smaller ones use their beginnings.
type buffers[T mpi.Number] struct {
	b       *bench
	of      func(int64) T
	out, in []T // in: where a collective has another one than out
}

func (s *buffers[T]) alloc(ctx context.Context, n int) (err error) {
	if s.out, err = s.buffer(ctx, n); err == nil && s.b.o.collective.twoBuffers {
		s.in, err = s.buffer(ctx, n)
	}
	return err
}

func (s *buffers[T]) buffer(ctx context.Context, n int) ([]T, error) {
	if s.b.o.Alloc {
		return mpi.Alloc[T](ctx, s.b.comm, n)
	}
	return make([]T, n), nil
}

// formula is the one that this collective's buffers are filled by.
func (s *buffers[T]) formula() formula {
	f := formula{ranks: s.b.ranks}
	if s.b.o.collective.reduces {
		f.op = s.b.o.op
	}
	return f
}

// own is a rank's pattern.
func (s *buffers[T]) own(rank, iteration int) []T {
	return converted(s.formula().pattern(rank, iteration), s.of)
}

// reduced is what the patterns of ranks 0 to last make together.
func (s *buffers[T]) reduced(last, iteration int) []T {
	return converted(s.formula().reduced(last, iteration), s.of)
}

// spoil fills buf with what no pattern has.
func (s *buffers[T]) spoil(buf []T) {
	spread(buf, converted(make([]int64, patternPeriod), func(int64) T { return s.of(-1) }))
}

// fill makes a timedCall's fill that puts this rank's pattern into in, and spoils out, if there is any.
func (s *buffers[T]) fill(in, out []T) func(iteration int) {
	return func(iteration int) {
		spread(in, s.own(s.b.rank, iteration))
		if out != nil {
			s.spoil(out)
		}
	}
}

// timedCall is a collective on buffers of one size.
type timedCall struct {
	fill  func(iteration int)             // puts this rank's pattern in, and what is wrong where results go
	run   func(ctx context.Context) error // the call, and nothing beside it
	wrong func(iteration int) int64       // elements of this rank's result that are not what fill(iteration) must give
}

// call is the call of this bench's collective on count elements.
func (s *buffers[T]) call(count int) timedCall {
	all := table[T]()
	i := slices.IndexFunc(all, func(m benchmark[T]) bool { return m.name == s.b.o.collective.name })
	return all[i].call(s, count)
}

func (s *buffers[T]) allReduce(count int) timedCall {
	b, buf := s.b, s.out[:count]
	return timedCall{
		fill:  s.fill(buf, nil),
		run:   func(ctx context.Context) error { return mpi.AllReduce(ctx, b.timed, buf, b.o.op.mpi) },
		wrong: func(iteration int) int64 { return countWrong(buf, s.reduced(b.ranks-1, iteration), 0) },
	}
}

func (s *buffers[T]) reduce(count int) timedCall {
	b, buf := s.b, s.out[:count]
	return timedCall{
		fill: s.fill(buf, nil),
		run:  func(ctx context.Context) error { return mpi.Reduce(ctx, b.timed, buf, 0, b.o.op.mpi) },
		wrong: func(iteration int) int64 {
			if b.rank != 0 {
				return 0
			}
			return countWrong(buf, s.reduced(b.ranks-1, iteration), 0)
		},
	}
}

func (s *buffers[T]) reduceScatter(count int) timedCall {
	b, at := s.b, s.bounds(count)
	out, in := s.out[:at[b.rank+1]-at[b.rank]], s.in[:count*b.ranks]
	return timedCall{
		fill:  s.fill(in, out),
		run:   func(ctx context.Context) error { return mpi.ReduceScatter(ctx, b.timed, out, in, b.o.op.mpi) },
		wrong: func(iteration int) int64 { return countWrong(out, s.reduced(b.ranks-1, iteration), at[b.rank]) },
	}
}

func (s *buffers[T]) scan(count int) timedCall {
	b, buf := s.b, s.out[:count]
	return timedCall{
		fill:  s.fill(buf, nil),
		run:   func(ctx context.Context) error { return mpi.Scan(ctx, b.timed, buf, b.o.op.mpi) },
		wrong: func(iteration int) int64 { return countWrong(buf, s.reduced(b.rank, iteration), 0) },
	}
}

func (s *buffers[T]) exscan(count int) timedCall {
	b, buf := s.b, s.out[:count]
	return timedCall{
		fill: s.fill(buf, nil),
		run:  func(ctx context.Context) error { return mpi.Exscan(ctx, b.timed, buf, b.o.op.mpi) },
		wrong: func(iteration int) int64 {
			if b.rank == 0 { // its buffer is not changed
				return countWrong(buf, s.own(0, iteration), 0)
			}
			return countWrong(buf, s.reduced(b.rank-1, iteration), 0)
		},
	}
}

func (s *buffers[T]) broadcast(count int) timedCall {
	b, buf := s.b, s.out[:count]
	return timedCall{
		fill: func(iteration int) {
			s.spoil(buf)
			if b.rank == 0 {
				spread(buf, s.own(0, iteration))
			}
		},
		run:   func(ctx context.Context) error { return mpi.Broadcast(ctx, b.timed, buf, 0) },
		wrong: func(iteration int) int64 { return countWrong(buf, s.own(0, iteration), 0) },
	}
}

func (s *buffers[T]) allGather(count int) timedCall {
	b, at := s.b, s.bounds(count)
	out, in := s.out[:count*b.ranks], s.in[:at[b.rank+1]-at[b.rank]]
	return timedCall{
		fill:  s.fill(in, out),
		run:   func(ctx context.Context) error { return mpi.AllGather(ctx, b.timed, out, in) },
		wrong: func(iteration int) int64 { return s.wrongBlocks(out, at, iteration, beginning) },
	}
}

func (s *buffers[T]) gather(count int) timedCall {
	b, at := s.b, s.bounds(count)
	out, in := s.out[:count*b.ranks], s.in[:at[b.rank+1]-at[b.rank]]
	return timedCall{
		fill: s.fill(in, out),
		run:  func(ctx context.Context) error { return mpi.Gather(ctx, b.timed, out, in, 0) },
		wrong: func(iteration int) int64 {
			if b.rank != 0 {
				return 0
			}
			return s.wrongBlocks(out, at, iteration, beginning)
		},
	}
}

// scatter's root has one long pattern, of which each rank gets its block; what the others have in goes nowhere.
func (s *buffers[T]) scatter(count int) timedCall {
	b, at := s.b, s.bounds(count)
	out, in := s.out[:at[b.rank+1]-at[b.rank]], s.in[:count*b.ranks]
	return timedCall{
		fill:  s.fill(in, out),
		run:   func(ctx context.Context) error { return mpi.Scatter(ctx, b.timed, out, in, 0) },
		wrong: func(iteration int) int64 { return countWrong(out, s.own(0, iteration), at[b.rank]) },
	}
}

func (s *buffers[T]) allToAll(count int) timedCall {
	b, out, in := s.b, s.out[:count*s.b.ranks], s.in[:count*s.b.ranks]
	return timedCall{
		fill: s.fill(in, out),
		run:  func(ctx context.Context) error { return mpi.AllToAll(ctx, b.timed, out, in) },
		wrong: func(iteration int) int64 {
			return s.wrongBlocks(out, s.bounds(count), iteration, func(int) int { return b.rank * count })
		},
	}
}

// pingPong goes from rank 0 to rank 1 and back; the others have nothing to do.
func (s *buffers[T]) pingPong(count int) timedCall {
	b, out, in := s.b, s.out[:count], s.in[:count]
	return timedCall{
		fill: s.fill(in, out),
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
			return countWrong(out, s.own(0, iteration), 0)
		},
	}
}

// bounds are where the blocks begin of a buffer that has count elements for each rank, and where the last one ends. Where blocks are
// uneven, rank r's length is proportional to r+1, as far as whole elements can be. scripts/bench/peers has the same ones.
func (s *buffers[T]) bounds(count int) []int {
	at := make([]int, s.b.ranks+1)
	for r := range at {
		if at[r] = count * r; s.b.o.collective.uneven {
			at[r] = count * r * (r + 1) / (s.b.ranks + 1)
		}
	}
	return at
}

// wrongBlocks counts what is wrong in the blocks of buf, one of each rank, which began in that rank's pattern at its element from.
func (s *buffers[T]) wrongBlocks(buf []T, at []int, iteration int, from func(rank int) int) (wrong int64) {
	for rank := range s.b.ranks {
		wrong += countWrong(buf[at[rank]:at[rank+1]], s.own(rank, iteration), from(rank))
	}
	return wrong
}

func beginning(int) int { return 0 }
