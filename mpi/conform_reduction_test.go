package mpi

import (
	"fmt"
	"slices"
)

// reduction is an operation with its inputs in a round and their result. The inputs are so small that every order gives the same result.
type reduction[T Number] struct {
	op     Op
	input  func(rank, i int) T
	result func(i, ranks int) T // element i, combined over the first ranks
}

// reduction returns the operation that the round asks for, or draws one of those that the element type has.
func (k kind[T]) reduction(r *round, scan bool) reduction[T] {
	input := func(rank, i int) T { return k.of((rank*5+i*3+r.salt)%7 + 1) }
	folded := func(input func(rank, i int) T, f func(a, b T) T) func(i, ranks int) T {
		return func(i, ranks int) T {
			column := make([]T, ranks)
			for rank := range column {
				column[rank] = input(rank, i)
			}
			return tree(column, f)
		}
	}
	var all []reduction[T]
	for op := Sum; op <= BXor; op++ {
		f := k.fold(op)
		if f == nil {
			continue
		}
		of := input
		if op == Product {
			of = func(rank, i int) T { return k.of(1 + (rank+i+r.salt)%6/5) }
		}
		all = append(all, reduction[T]{op, of, folded(of, f)})
	}
	add := k.fold(Sum)
	if k.scale != nil {
		factor := func(rank int) int { return 1 + rank%2 }
		scaled := func(rank, i int) T { return k.scale(input(rank, i), factor(rank)) }
		all = append(all, reduction[T]{PreMulSum(float64(factor(r.c.Rank()))), input, folded(scaled, add)})
	}
	if k.divide != nil && !scan {
		total := folded(input, add)
		all = append(all, reduction[T]{Avg, input, func(i, ranks int) T { return k.divide(total(i, ranks), ranks) }})
	}
	if r.canonical { // MPICH's redscat2
		left := NewOp("left", false, func(dst, left, _ []T) { copy(dst, left) })
		right := NewOp("right", false, func(dst, _, right []T) { copy(dst, right) })
		all = append(all,
			reduction[T]{left, input, func(i, _ int) T { return input(0, i) }},
			reduction[T]{right, input, func(i, ranks int) T { return input(ranks-1, i) }},
		)
	}
	if r.operation > 0 {
		return all[(r.operation-1)%len(all)]
	}
	return all[r.dice.IntN(len(all))]
}

// mostOperations is the largest number of operations of a type: seven by name, PREMUL_SUM, AVG, and two of the user's.
const mostOperations = 11

// fill puts the rank's inputs into a new buffer.
func (red reduction[T]) fill(r *round, n int) []T {
	buf := room[T](r, n)
	for i := range buf {
		buf[i] = red.input(r.c.Rank(), i)
	}
	return buf
}

// check returns an error if buf is not what the first ranks' elements, from element lo on, combine to.
func (k kind[T]) check(r *round, red reduction[T], buf []T, lo, ranks int) error {
	want := make([]T, len(buf))
	for i := range want {
		want[i] = red.result(lo+i, ranks)
	}
	if err := k.same(buf, want); err != nil {
		return fmt.Errorf("%v: %w", red.op, err)
	}
	return r.intact()
}

// unchanged returns an error if buf is not what fill put into it.
func (k kind[T]) unchanged(red reduction[T], rank int, buf []T) error {
	want := make([]T, len(buf))
	for i := range want {
		want[i] = red.input(rank, i)
	}
	if err := k.same(buf, want); err != nil {
		return fmt.Errorf("%v has changed what is not the result: %w", red.op, err)
	}
	return nil
}

func (k kind[T]) allReduce(r *round) error {
	red := k.reduction(r, false)
	buf := red.fill(r, r.n)
	var err error
	if at := r.dice.IntN(r.n + 1); !r.async && r.salt%4 == 0 {
		err = AllReduceMany(r.ctx, r.c, [][]T{buf[:at], buf[at:]}, red.op)
	} else {
		err = r.do(
			func() error { return AllReduce(r.ctx, r.c, buf, red.op) },
			func() *Request { return IAllReduce(r.ctx, r.c, buf, red.op) })
	}
	if err != nil {
		return err
	}
	return k.check(r, red, buf, 0, r.c.Size())
}

func (k kind[T]) reduce(r *round) error {
	red := k.reduction(r, false)
	buf := red.fill(r, r.n)
	err := r.do(
		func() error { return Reduce(r.ctx, r.c, buf, r.root, red.op) },
		func() *Request { return IReduce(r.ctx, r.c, buf, r.root, red.op) })
	switch {
	case err != nil:
		return err
	case r.c.Rank() != r.root:
		return k.unchanged(red, r.c.Rank(), buf)
	}
	return k.check(r, red, buf, 0, r.c.Size())
}

func (k kind[T]) reduceScatter(r *round) error {
	red := k.reduction(r, false)
	in, out := red.fill(r, r.n*r.c.Size()), room[T](r, r.n)
	if err := r.do(
		func() error { return ReduceScatter(r.ctx, r.c, out, in, red.op) },
		func() *Request { return IReduceScatter(r.ctx, r.c, out, in, red.op) }); err != nil {
		return err
	}
	if err := k.unchanged(red, r.c.Rank(), in); err != nil {
		return err
	}
	return k.check(r, red, out, r.n*r.c.Rank(), r.c.Size())
}

func (k kind[T]) reduceScatterV(r *round) error {
	red := k.reduction(r, false)
	counts, total := r.counts()
	in, out := red.fill(r, total), room[T](r, counts[r.c.Rank()])
	if err := ReduceScatterV(r.ctx, r.c, out, in, counts, red.op); err != nil {
		return err
	}
	if err := k.unchanged(red, r.c.Rank(), in); err != nil {
		return err
	}
	return k.check(r, red, out, before(counts, r.c.Rank()), r.c.Size())
}

func (k kind[T]) scan(r *round) error {
	red := k.reduction(r, true)
	buf := red.fill(r, r.n)
	if err := r.do(
		func() error { return Scan(r.ctx, r.c, buf, red.op) },
		func() *Request { return IScan(r.ctx, r.c, buf, red.op) }); err != nil {
		return err
	}
	return k.check(r, red, buf, 0, r.c.Rank()+1)
}

func (k kind[T]) exscan(r *round) error {
	red := k.reduction(r, true)
	buf := red.fill(r, r.n)
	given := slices.Clone(buf)
	err := r.do(
		func() error { return Exscan(r.ctx, r.c, buf, red.op) },
		func() *Request { return IExscan(r.ctx, r.c, buf, red.op) })
	switch {
	case err != nil:
		return err
	case r.c.Rank() == 0:
		return k.same(buf, given)
	}
	return k.check(r, red, buf, 0, r.c.Rank())
}
