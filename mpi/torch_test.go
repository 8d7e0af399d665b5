package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/internal/testkit"
)

// handmade is a case from another project's tests, with values that were worked out by hand.
type handmade struct {
	name   string
	worlds []int
	run    func(ctx context.Context, c *Comm) error
}

// The numbers of ranks with which the cases are played.
var (
	few         = []int{1, 2, 3, 4, 7}                                 // powers of two, odd, and prime
	mpichWorlds = []int{3, 4, 5, 7, 8, 10}                             // of MPICH's test/mpi/coll/testlist
	glooWorlds  = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 24, 27, 32} // of Gloo's gloo/test
)

// handmadeCases are those of PyTorch 1.13.1 (test_c10d_gloo.py, distributed_test.py) and of MPICH (test/mpi/coll).
var handmadeCases = []handmade{
	{"torch/simple_reduce", few, torchSimpleReduce},
	{"torch/master_and_workers", few, torchMasterAndWorkers},
	{"torch/broadcast", few, torchBroadcast},
	{"torch/scatter", few, torchScatter},
	{"torch/gather", few, torchGather},
	{"torch/all_gather", few, torchAllGather},
	{"torch/all_to_all_equal", few, torchAllToAllEqual},
	{"torch/all_to_all_unequal", few, torchAllToAllUnequal},
	{"torch/stress", []int{2, 4}, torchStress},
	{"mpich/redscat", mpichWorlds, mpichRedscat},
	{"mpich/redscat2", mpichWorlds, mpichRedscat2},
	{"mpich/alltoall1", mpichWorlds, mpichAllToAll},
	{"mpich/alltoallv", mpichWorlds, mpichAllToAllV},
	{"mpich/alltoallv0", mpichWorlds, mpichAllToAllV0},
	{"mpich/exscan", mpichWorlds, mpichExscan},
	{"mpich/coll4", mpichWorlds, mpichRows},
	{"mpich/coll6", mpichWorlds, mpichAllRows},
	{"mpich/red4", mpichWorlds, mpichPermutations},
	{"mpich/opband", mpichWorlds, mpichBitwise},
	{"mpich/allred5", mpichWorlds, mpichAllred5},
	{"mpich/allredmany", mpichWorlds, mpichAllredMany},
	{"mpich/longuser", mpichWorlds, mpichLongUser},
	{"mpich/uoplong", mpichWorlds, mpichUserOpLong},
	{"mpich/allred_float", mpichWorlds, mpichAllredFloat},
	{"mpich/nonblocking", mpichWorlds, mpichNonblocking},
}

// Every case gives its results over every transport, with every algorithm of its collective: those that keep the canonical order, and then
// all. The cases with the same number of ranks share a world.
func TestHandmadeCasesGiveTheirResults(t *testing.T) { // without the race detector
	if testing.Short() {
		t.Skip("-short: it compares very many results")
	}
	worlds := append(slices.Clone(few), mpichWorlds...)
	slices.Sort(worlds)
	worlds = slices.Compact(worlds)
	for _, over := range transports {
		for _, size := range sizesOn(over, worlds) {
			t.Run(over+"/"+rankName(size), func(t *testing.T) {
				deterministic := rand.IntN(2) == 1
				t.Logf("deterministic: %v", deterministic)
				w := newWorldOn(t, over, size, func(cfg *InitConfig) { cfg.Config.Deterministic = deterministic })
				for _, tt := range handmadeCases {
					if !slices.Contains(tt.worlds, size) {
						continue
					}
					t.Run(tt.name, func(t *testing.T) {
						must(t, testkit.Each(size, func(rank int) error { return tt.run(t.Context(), w[rank]) }))
					})
				}
			})
		}
	}
}

// handmadeProcess is a rank of TestHandmadeCasesGiveTheirResults in its own process: it plays all cases, one after another, whatever
// the number of ranks.
func handmadeProcess(ctx context.Context, c *Comm) error {
	for _, deterministic := range []bool{true, false} {
		c.core.world.config.Deterministic = deterministic
		for _, tt := range handmadeCases {
			if err := tt.run(ctx, c); err != nil {
				return fmt.Errorf("%s, deterministic %v: %w", tt.name, deterministic, err)
			}
		}
	}
	return nil
}

// permitted returns the algorithms that c may use, sorted. The empty name leaves the choice to c.
func permitted(c *Comm, collective string) []string {
	if c.core.config().Deterministic {
		return canonicalNames(c, collective)
	}
	names := []string{""}
	for _, tt := range conformity {
		if tt.name == collective {
			names = append(names, sortedKeys(tt.names(c))...)
		}
	}
	return names
}

// reduced returns an error unless the ranks' in becomes want, by AllReduce with every algorithm, and by Reduce to each root, with every
// algorithm to some root.
func reduced[T Number](ctx context.Context, c *Comm, op Op, in, want []T) error {
	buf := make([]T, len(in))
	for _, name := range permitted(c, "all_reduce") {
		copy(buf, in)
		if err := AllReduce(ctx, c.Using(name), buf, op); err != nil {
			return err
		}
		if !slices.Equal(buf, want) {
			return fmt.Errorf("all_reduce %v by %q of %v: %v, want %v", op, name, in, buf, want)
		}
	}
	names := permitted(c, "reduce")
	for i := range max(c.Size(), len(names)) {
		root, name := i%c.Size(), names[i%len(names)]
		copy(buf, in)
		if err := Reduce(ctx, c.Using(name), buf, root, op); err != nil {
			return err
		}
		if c.Rank() == root && !slices.Equal(buf, want) || c.Rank() != root && !slices.Equal(buf, in) {
			return fmt.Errorf("reduce %v by %q of %v to rank %d: %v, want %v there alone", op, name, in, root, buf, want)
		}
	}
	return nil
}

// reducedTogether returns an error unless two buffers, reduced in one call, become want.
func reducedTogether[T Number](ctx context.Context, c *Comm, op Op, in [2]T, want [2]T) error {
	for _, name := range permitted(c, "all_reduce") {
		x, y := []T{in[0]}, []T{in[1]}
		if err := AllReduceMany(ctx, c.Using(name), [][]T{x, y}, op); err != nil {
			return err
		}
		if x[0] != want[0] || y[0] != want[1] {
			return fmt.Errorf("two at once, %v by %q of %v: %v and %v, want %v", op, name, in, x, y, want)
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

// oddFactorial returns 1 * 3 * 5 * ..., n factors.
func oddFactorial(n int) int { return factorial(2*n) / factorial(n) >> n }

// simpleReduce is simple_reduce_tests of torch's test_c10d_gloo.py.
func simpleReduce[T float32 | float64 | int32 | int64 | uint64 | complex128](ctx context.Context, c *Comm, of func(int) T) error {
	rank, size := c.Rank(), c.Size()
	one := func(x int) []T { return []T{of(x)} }
	errs := []error{
		reduced(ctx, c, Sum, one(rank+1), one(size*(size+1)/2)),
		reduced(ctx, c, Product, one(rank+1), one(factorial(size))),
		// The coalesced cases.
		reducedTogether(ctx, c, Sum, [2]T{of(rank + 1), of((rank + 1) * (rank + 1))},
			[2]T{of(size * (size + 1) / 2), of(size * (size + 1) * (2*size + 1) / 6)}),
		reducedTogether(ctx, c, Product, [2]T{of(rank + 1), of(rank + 2)}, [2]T{of(factorial(size)), of(factorial(size + 1))}),
		// In torch, each rank has two inputs. The sum of all inputs is W(2W-1), and their product (2W)!. Here each of two buffers reduces
		// half of them.
		reducedTogether(ctx, c, Sum, [2]T{of(2 * rank), of(2*rank + 1)}, [2]T{of(size * (size - 1)), of(size * size)}),
		reducedTogether(ctx, c, Product, [2]T{of(2*rank + 1), of(2*rank + 2)}, [2]T{of(oddFactorial(size)), of(factorial(size) << size)}),
	}
	return errors.Join(errs...)
}

func torchSimpleReduce(ctx context.Context, c *Comm) error {
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
		reducedTogether(ctx, c, Min, [2]int16{int16(rank), int16(rank + 1)}, [2]int16{0, 1}),
		reducedTogether(ctx, c, Max, [2]int16{int16(rank + 1), int16(rank + 2)}, [2]int16{int16(size), int16(size + 1)}),
		reducedTogether(ctx, c, Min, [2]float32{float32(2*rank + 1), float32(2*rank + 2)}, [2]float32{1, 2}),
		reducedTogether(ctx, c, Max, [2]float32{float32(2*rank + 1), float32(2*rank + 2)},
			[2]float32{float32(2*size - 1), float32(2 * size)}),
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
		errs = append(errs, reduced(ctx, c, BOr, []int32{int32(in)}, []int32{int32(or)}),
			reduced(ctx, c, BXor, []int32{int32(in)}, []int32{int32(xor)}))
	}
	return errors.Join(errs...)
}

// torchMasterAndWorkers is the helper of torch's distributed_test.py: each rank is the master once, with another value and shape.
func torchMasterAndWorkers(ctx context.Context, c *Comm) error {
	half, err := c.Split(ctx, c.Rank()%2, 0) // the case also runs on a group of some of the ranks
	if err != nil {
		return err
	}
	return errors.Join(masterAndWorkers(ctx, c), masterAndWorkers(ctx, half), half.Close())
}

func masterAndWorkers(ctx context.Context, c *Comm) error {
	size := c.Size()
	for src := range size {
		n := (src + 1) * (src + 1) * (src + 1)
		product := 2
		for range size - 1 {
			product *= 10
		}
		for _, tt := range []struct {
			op                   Op
			master, worker, want int
		}{
			{Sum, 2, 10, 2 + 10*(size-1)},
			{Product, 2, 10, product},
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
}

// torchStress makes torch's stress tests: all-reduces of i+rank give i*W + W(W-1)/2, and broadcasts from root i%W give i*W + i%W.
func torchStress(ctx context.Context, c *Comm) error {
	const calls = 1000
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
}

// In torchBroadcast, every rank is the root once, and sends its number.
func torchBroadcast(ctx context.Context, c *Comm) error {
	for _, name := range permitted(c, "broadcast") {
		for root := range c.Size() {
			x, y := []float32{float32(c.Rank())}, []int64{int64(c.Rank()), -1}
			err := errors.Join(
				Broadcast(ctx, c.Using(name), x, root),
				BroadcastMany(ctx, c.Using(name), [][]int64{y[:1], nil, y[1:]}, root),
				equal(x, []float32{float32(root)}), equal(y, []int64{int64(root), -1}))
			if err != nil {
				return fmt.Errorf("by %q: %w", name, err)
			}
		}
	}
	return nil
}

// In round i of torchScatter, root i sends the value i to every rank.
func torchScatter(ctx context.Context, c *Comm) error {
	for _, name := range permitted(c, "scatter") {
		for i := range c.Size() {
			var in []float32
			if c.Rank() == i {
				in = slices.Repeat([]float32{float32(i)}, c.Size())
			}
			out := []float32{-1}
			if err := errors.Join(Scatter(ctx, c.Using(name), out, in, i), equal(out, []float32{float32(i)})); err != nil {
				return fmt.Errorf("by %q: %w", name, err)
			}
		}
	}
	return nil
}

// In torchGather, each root gets 0 to W-1.
func torchGather(ctx context.Context, c *Comm) error {
	for _, name := range permitted(c, "gather") {
		for root := range c.Size() {
			var out, want []float32
			if c.Rank() == root {
				out, want = make([]float32, c.Size()), upTo(c.Size())
			}
			if err := errors.Join(Gather(ctx, c.Using(name), out, []float32{float32(c.Rank())}, root), equal(out, want)); err != nil {
				return fmt.Errorf("by %q: %w", name, err)
			}
		}
	}
	return nil
}

// torchAllGather has one, two and three inputs on each rank. The values n*rank+i come out as 0 to nW-1.
func torchAllGather(ctx context.Context, c *Comm) error {
	for _, name := range permitted(c, "all_gather") {
		for n := 1; n <= 3; n++ {
			out, want := make([]float32, n*c.Size()), upTo(n*c.Size())
			in := want[n*c.Rank():][:n]
			if err := errors.Join(AllGather(ctx, c.Using(name), out, in), equal(out, want)); err != nil {
				return fmt.Errorf("by %q: %w", name, err)
			}
		}
	}
	return nil
}

func upTo(n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(i)
	}
	return list
}

// torchAllToAllEqual is all_to_all_single of W x W ones times the rank. Row i comes out as i.
func torchAllToAllEqual(ctx context.Context, c *Comm) error {
	size := c.Size()
	for _, name := range permitted(c, "all_to_all") {
		out, want := make([]complex64, size*size), make([]complex64, size*size)
		for i := range want {
			want[i] = complex(float32(i/size), 0)
		}
		in := slices.Repeat([]complex64{complex(float32(c.Rank()), 0)}, size*size)
		if err := errors.Join(AllToAll(ctx, c.Using(name), out, in), equal(out, want)); err != nil {
			return fmt.Errorf("by %q: %w", name, err)
		}
	}
	return nil
}

// torchAllToAllUnequal is all_to_all_single with in_splits[i] = i+1 rows of the rank's value, which come out as rank+1 rows of each i.
func torchAllToAllUnequal(ctx context.Context, c *Comm) error {
	rank, size := c.Rank(), c.Size()
	to, from := make([]int, size), make([]int, size)
	var want []complex64
	for i := range size {
		to[i], from[i] = size*(i+1), size*(rank+1)
		want = append(want, slices.Repeat([]complex64{complex(float32(i), -1)}, from[i])...)
	}
	in := slices.Repeat([]complex64{complex(float32(rank), -1)}, sum(to))
	for _, name := range permitted(c, "all_to_all_v") {
		out := make([]complex64, sum(from))
		if err := errors.Join(AllToAllV(ctx, c.Using(name), out, from, in, to), equal(out, want)); err != nil {
			return fmt.Errorf("by %q: %w", name, err)
		}
	}
	return nil
}
