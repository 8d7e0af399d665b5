package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// few are numbers of ranks for tests that are made of values by hand: powers of two, odd, and prime.
var few = []int{1, 2, 3, 4, 7}

// reduced is an error unless the ranks' in becomes want, by AllReduce, and by Reduce at each root.
func reduced[T Number](ctx context.Context, c *Comm, op Op, in, want []T) error {
	buf := slices.Clone(in)
	if err := AllReduce(ctx, c, buf, op); err != nil {
		return err
	}
	if !slices.Equal(buf, want) {
		return fmt.Errorf("all_reduce %v of %v: %v, want %v", op, in, buf, want)
	}
	for root := range c.Size() {
		copy(buf, in)
		if err := Reduce(ctx, c, buf, root, op); err != nil {
			return err
		}
		if c.Rank() == root && !slices.Equal(buf, want) || c.Rank() != root && !slices.Equal(buf, in) {
			return fmt.Errorf("reduce %v of %v to rank %d: %v, want %v there alone", op, in, root, buf, want)
		}
	}
	return nil
}

func factorial(n int) int {
	product := 1
	for i := 2; i <= n; i++ {
		product *= i
	}
	return product
}

// simple_reduce_tests of torch's test_c10d_gloo.py.
func simpleReduce[T float32 | float64 | int32 | int64 | uint64 | complex128](ctx context.Context, c *Comm, of func(int) T) error {
	rank, size := c.Rank(), c.Size()
	one := func(x int) []T { return []T{of(x)} }
	errs := []error{
		reduced(ctx, c, Sum, one(rank+1), one(size*(size+1)/2)),
		reduced(ctx, c, Product, one(rank+1), one(factorial(size))),
		// Two buffers at once: the coalesced cases.
		reduced(ctx, c, Sum, []T{of(rank + 1), of((rank + 1) * (rank + 1))}, []T{of(size * (size + 1) / 2), of(size * (size + 1) * (2*size + 1) / 6)}),
		reduced(ctx, c, Product, []T{of(rank + 1), of(rank + 2)}, []T{of(factorial(size)), of(factorial(size + 1))}),
	}
	return errors.Join(errs...)
}

func TestTorchSimpleReduce(t *testing.T) {
	everywhere(t, few, func(ctx context.Context, c *Comm) error {
		rank, size := c.Rank(), c.Size()
		errs := []error{
			simpleReduce(ctx, c, func(x int) float32 { return float32(x) }),
			simpleReduce(ctx, c, func(x int) float64 { return float64(x) }),
			simpleReduce(ctx, c, func(x int) int32 { return int32(x) }),
			simpleReduce(ctx, c, func(x int) int64 { return int64(x) }),
			simpleReduce(ctx, c, func(x int) uint64 { return uint64(x) }),
			simpleReduce(ctx, c, func(x int) complex128 { return complex(float64(x), 0) }),
			reduced(ctx, c, Min, []float32{float32(rank + 1)}, []float32{1}),
			reduced(ctx, c, Max, []float32{float32(rank + 1)}, []float32{float32(size)}),
			reduced(ctx, c, Min, []int16{int16(rank), int16(rank + 1)}, []int16{0, 1}),
			reduced(ctx, c, Max, []int16{int16(rank + 1), int16(rank + 2)}, []int16{int16(size), int16(size + 1)}),
			reduced(ctx, c, Avg, []float64{float64(rank)}, []float64{float64(size-1) / 2}),
		}
		for i := range 4 {
			want := int32(1 << i)
			if size == 1 {
				want |= int32(rank)
			}
			errs = append(errs, reduced(ctx, c, BAnd, []int32{int32(rank | 1<<i)}, []int32{want}))
		}
		for i := 1; i < 5; i++ {
			in, or, xor := 0, 0, 0
			for j := range i {
				in |= rank*i + j
			}
			for r := range size {
				part := 0
				for j := range i {
					part |= r*i + j
				}
				or |= part
				xor ^= part
			}
			errs = append(errs, reduced(ctx, c, BOr, []int32{int32(in)}, []int32{int32(or)}), reduced(ctx, c, BXor, []int32{int32(in)}, []int32{int32(xor)}))
		}
		return errors.Join(errs...)
	})
}

// The helper of torch's distributed_test.py: each rank once is the master, with another value and shape.
func TestTorchMasterAndWorkers(t *testing.T) {
	everywhere(t, few, func(ctx context.Context, c *Comm) error {
		size := c.Size()
		for src := range size {
			n := (src + 1) * (src + 1) * (src + 1)
			for _, tt := range []struct {
				op                   Op
				master, worker, want int
			}{
				{Sum, 2, 10, 2 + 10*(size-1)},
				{Product, 10, 2, 10 << (size - 1)},
				{Min, 1010, 1, 1},
				{Max, -1, 10, 10},
			} {
				if size == 1 && (tt.op == Min || tt.op == Max) {
					tt.want = tt.master
				}
				x := tt.worker
				if c.Rank() == src {
					x = tt.master
				}
				if err := reduced(ctx, c, tt.op, slices.Repeat([]int64{int64(x)}, n), slices.Repeat([]int64{int64(tt.want)}, n)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// torch's stress tests: all-reduces of i+rank give i*W + W(W-1)/2; broadcasts from root i%W give i*W + i%W.
func TestTorchStress(t *testing.T) {
	const calls = 1000
	everywhere(t, []int{2, 4}, func(ctx context.Context, c *Comm) error {
		size := c.Size()
		sums, copies := make([][]int64, calls), make([][]int64, calls)
		var requests []*Request
		for i := range calls {
			sums[i], copies[i] = []int64{int64(i + c.Rank())}, []int64{int64(i*size + c.Rank())}
			requests = append(requests, IAllReduce(ctx, c, sums[i], Sum), IBroadcast(ctx, c, copies[i], i%size))
		}
		for i := range calls {
			if err := WaitAll(ctx, requests[2*i], requests[2*i+1]); err != nil {
				return err
			}
			if want := int64(i*size + size*(size-1)/2); sums[i][0] != want {
				return fmt.Errorf("sum %d is %d, want %d", i, sums[i][0], want)
			}
			if want := int64(i*size + i%size); copies[i][0] != want {
				return fmt.Errorf("copy %d is %d, want %d", i, copies[i][0], want)
			}
		}
		return nil
	})
}

// torch's all_to_all_single: in_splits[i] = i+1 rows of the rank's value, which come out as rank+1 rows of each i.
func TestTorchAllToAllUnequal(t *testing.T) {
	everywhere(t, few, func(ctx context.Context, c *Comm) error {
		rank, size := c.Rank(), c.Size()
		to, from := make([]int, size), make([]int, size)
		var want []complex64
		for i := range size {
			to[i], from[i] = size*(i+1), size*(rank+1)
			want = append(want, slices.Repeat([]complex64{complex(float32(i), -1)}, from[i])...)
		}
		in := slices.Repeat([]complex64{complex(float32(rank), -1)}, sum(to))
		out := make([]complex64, sum(from))
		if err := AllToAllV(ctx, c, out, from, in, to); err != nil {
			return err
		}
		if !slices.Equal(out, want) {
			return fmt.Errorf("got %v, want %v", out, want)
		}
		return nil
	})
}
