package mpi

// mark returns element i of what rank from has for rank to.
func (k kind[T]) mark(r *round, from, to, i int) T {
	return k.of((from*37 + to*11 + i*7 + r.salt) % 251)
}

// put fills part with what rank from has for rank to.
func (k kind[T]) put(r *round, part []T, from, to int) {
	for i := range part {
		part[i] = k.mark(r, from, to, i)
	}
}

// got returns an error if part differs from what put would write into it.
func (k kind[T]) got(r *round, part []T, from, to int) error {
	want := make([]T, len(part))
	k.put(r, want, from, to)
	return k.same(part, want)
}

// blockwise checks a buffer of blocks. ends gives the ranks that block i comes from and goes to.
func (k kind[T]) blockwise(r *round, out []T, counts []int, ends func(i int) (from, to int)) error {
	for i, n := range counts {
		from, to := ends(i)
		if err := k.got(r, out[before(counts, i):][:n], from, to); err != nil {
			return err
		}
	}
	return r.intact()
}

func (r *round) evenCounts() ([]int, int) {
	counts := make([]int, r.c.Size())
	for i := range counts {
		counts[i] = r.n
	}
	return counts, r.n * len(counts)
}

func (k kind[T]) broadcast(r *round) error {
	buf := room[T](r, r.n)
	if r.c.Rank() == r.root {
		k.put(r, buf, r.root, 0)
	}
	var err error
	if at := r.dice.IntN(r.n + 1); !r.async && r.salt%4 == 0 {
		err = BroadcastMany(r.ctx, r.c, [][]T{buf[:at], buf[at:]}, r.root)
	} else {
		err = r.do(
			func() error { return Broadcast(r.ctx, r.c, buf, r.root) },
			func() *Request { return IBroadcast(r.ctx, r.c, buf, r.root) })
	}
	if err != nil {
		return err
	}
	return k.blockwise(r, buf, []int{r.n}, func(int) (int, int) { return r.root, 0 })
}

// own returns the rank's part of a buffer of blocks, or a new buffer of the same length.
func own[T Number](r *round, buf []T, counts []int) []T {
	if r.salt%2 == 0 {
		return buf[before(counts, r.c.Rank()):][:counts[r.c.Rank()]]
	}
	return room[T](r, counts[r.c.Rank()])
}

func (k kind[T]) allGather(r *round) error {
	counts, total := r.evenCounts()
	out := room[T](r, total)
	in := own(r, out, counts)
	k.put(r, in, r.c.Rank(), 0)
	if err := r.do(
		func() error { return AllGather(r.ctx, r.c, out, in) },
		func() *Request { return IAllGather(r.ctx, r.c, out, in) }); err != nil {
		return err
	}
	return k.blockwise(r, out, counts, func(i int) (int, int) { return i, 0 })
}

func (k kind[T]) allGatherV(r *round) error {
	counts, total := r.counts()
	out := room[T](r, total)
	in := own(r, out, counts)
	k.put(r, in, r.c.Rank(), 0)
	if err := AllGatherV(r.ctx, r.c, out, in, counts); err != nil {
		return err
	}
	return k.blockwise(r, out, counts, func(i int) (int, int) { return i, 0 })
}

func (k kind[T]) gather(r *round) error {
	counts, total := r.evenCounts()
	return k.gatherBlocks(r, counts, total, func(out, in []T) error {
		return r.do(
			func() error { return Gather(r.ctx, r.c, out, in, r.root) },
			func() *Request { return IGather(r.ctx, r.c, out, in, r.root) })
	})
}

func (k kind[T]) gatherV(r *round) error {
	counts, total := r.counts()
	return k.gatherBlocks(r, counts, total, func(out, in []T) error {
		if r.c.Rank() != r.root {
			return GatherV(r.ctx, r.c, nil, in, nil, r.root)
		}
		return GatherV(r.ctx, r.c, out, in, counts, r.root)
	})
}

func (k kind[T]) gatherBlocks(r *round, counts []int, total int, gather func(out, in []T) error) error {
	in := room[T](r, counts[r.c.Rank()])
	if r.c.Rank() != r.root {
		k.put(r, in, r.c.Rank(), 0)
		return gather(nil, in)
	}
	out := room[T](r, total)
	in = own(r, out, counts)
	k.put(r, in, r.c.Rank(), 0)
	if err := gather(out, in); err != nil {
		return err
	}
	return k.blockwise(r, out, counts, func(i int) (int, int) { return i, 0 })
}

func (k kind[T]) scatter(r *round) error {
	counts, total := r.evenCounts()
	return k.scatterBlocks(r, counts, total, func(out, in []T) error {
		return r.do(
			func() error { return Scatter(r.ctx, r.c, out, in, r.root) },
			func() *Request { return IScatter(r.ctx, r.c, out, in, r.root) })
	})
}

func (k kind[T]) scatterV(r *round) error {
	counts, total := r.counts()
	return k.scatterBlocks(r, counts, total, func(out, in []T) error {
		if r.c.Rank() != r.root {
			return ScatterV(r.ctx, r.c, out, nil, nil, r.root)
		}
		return ScatterV(r.ctx, r.c, out, in, counts, r.root)
	})
}

func (k kind[T]) scatterBlocks(r *round, counts []int, total int, scatter func(out, in []T) error) error {
	mine := counts[r.c.Rank()]
	out, in := room[T](r, mine), []T(nil)
	if r.c.Rank() == r.root {
		in = room[T](r, total)
		for to := range counts {
			k.put(r, in[before(counts, to):][:counts[to]], r.root, to)
		}
		out = own(r, in, counts)
	}
	if err := scatter(out, in); err != nil {
		return err
	}
	return k.blockwise(r, out, []int{mine}, func(int) (int, int) { return r.root, r.c.Rank() })
}

func (k kind[T]) allToAll(r *round) error {
	counts, total := r.evenCounts()
	in, out := room[T](r, total), room[T](r, total)
	for to := range counts {
		k.put(r, in[before(counts, to):][:r.n], r.c.Rank(), to)
	}
	if err := r.do(
		func() error { return AllToAll(r.ctx, r.c, out, in) },
		func() *Request { return IAllToAll(r.ctx, r.c, out, in) }); err != nil {
		return err
	}
	return k.blockwise(r, out, counts, func(i int) (int, int) { return i, r.c.Rank() })
}

func (k kind[T]) allToAllV(r *round) error {
	rank, size := r.c.Rank(), r.c.Size()
	to, from := make([]int, size), make([]int, size)
	for a := range size {
		for b := range size {
			n := r.dice.IntN(r.n+1) * r.dice.IntN(3) / 2
			if a == rank {
				to[b] = n
			}
			if b == rank {
				from[a] = n
			}
		}
	}
	in, out := room[T](r, sum(to)), room[T](r, sum(from))
	for b, n := range to {
		k.put(r, in[before(to, b):][:n], rank, b)
	}
	if err := AllToAllV(r.ctx, r.c, out, from, in, to); err != nil {
		return err
	}
	return k.blockwise(r, out, from, func(i int) (int, int) { return i, rank })
}
