package collbench

import (
	"context"
	"slices"

	"ddpbatch/mpi"
)

// buffers holds a rank's buffers for the largest size; calls with smaller sizes use their beginnings.
type buffers[T mpi.Number] struct {
	b       *bench
	of      func(int64) T
	out, in []T // in is nil if the collective has only one buffer
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

// formula returns the formula by which this collective's buffers are filled.
func (s *buffers[T]) formula() formula {
	f := formula{ranks: s.b.ranks}
	if s.b.o.collective.reduces {
		f.op = s.b.o.op
	}
	return f
}

// own returns a rank's pattern.
func (s *buffers[T]) own(rank, iteration int) []T {
	return converted(s.formula().pattern(rank, iteration), s.of)
}

// reduced returns the reduction of the patterns of ranks 0 to last.
func (s *buffers[T]) reduced(last, iteration int) []T {
	return converted(s.formula().reduced(last, iteration), s.of)
}

// spoil fills buf with a value that patterns do not contain.
func (s *buffers[T]) spoil(buf []T) {
	spread(buf, converted(make([]int64, patternPeriod), func(int64) T { return s.of(-1) }))
}

// fill returns a timedCall's fill, which puts this rank's pattern into in, and spoils out unless it is nil.
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
	fill  func(iteration int)             // puts this rank's pattern into the input, and wrong values into the output
	run   func(ctx context.Context) error // makes only the call
	wrong func(iteration int) int64       // counts the wrong elements of this rank's result after fill(iteration) and run
}

// call returns the call of this bench's collective on count elements.
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
			if b.rank == 0 { // the call does not change its buffer
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

// scatter's root has one long pattern, of which each rank gets its block. The input of the other ranks is not sent.
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

// pingPong sends a message from rank 0 to rank 1 and back; the other ranks do nothing.
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

// bounds returns where the blocks of a buffer that has count elements for each rank begin, and where the last one ends. If blocks are
// uneven, the length of rank r's block is proportional to r+1, rounded to whole elements. scripts/bench/peers has the same bounds.
func (s *buffers[T]) bounds(count int) []int {
	at := make([]int, s.b.ranks+1)
	for r := range at {
		if at[r] = count * r; s.b.o.collective.uneven {
			at[r] = count * r * (r + 1) / (s.b.ranks + 1)
		}
	}
	return at
}

// wrongBlocks counts the wrong elements in the blocks of buf, one of each rank. A rank's block begins at element from(rank) of that rank's
// pattern.
func (s *buffers[T]) wrongBlocks(buf []T, at []int, iteration int, from func(rank int) int) (wrong int64) {
	for rank := range s.b.ranks {
		wrong += countWrong(buf[at[rank]:at[rank+1]], s.own(rank, iteration), from(rank))
	}
	return wrong
}

func beginning(int) int { return 0 }
