package mpi

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"ddpbatch/internal/testkit"
)

// Worlds and counts are Gloo's (reference/collectives.md §4.6) without the
// largest; 700 001 elements take several frames in each chunk of small worlds.
var (
	worlds = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16}
	counts = []int{0, 1, 2, 10, 64, 100, 1000, 10000}
	large  = 700_001
)

func countsFor(size int) []int {
	if size == 1 || size == 2 || size == 3 || size == 7 {
		return append(slices.Clone(counts), large)
	}
	return counts
}

// simpleReduce is torch's simple_reduce_tests (test_c10d_gloo.py): rank r of W gives r+1.
func simpleReduce[T Number](w []*Comm) func(t *testing.T) {
	return func(t *testing.T) {
		size := len(w)
		for _, tt := range []struct {
			op   Op
			want int
		}{
			{Sum, size * (size + 1) / 2},
			{Min, 1},
			{Max, size},
		} {
			for _, n := range countsFor(size) {
				must(t, testkit.Each(size, func(rank int) error {
					buf := slices.Repeat([]T{T(rank + 1)}, n)
					if err := AllReduce(t.Context(), w[rank], buf, tt.op); err != nil {
						return err
					}
					if i := slices.IndexFunc(buf, func(x T) bool { return x != T(tt.want) }); i >= 0 {
						return fmt.Errorf("%v of %d: element %d is %v, want %d", tt.op, n, i, buf[i], tt.want)
					}
					return nil
				}))
			}
		}
	}
}

type myFloat float32

func TestAllReduce(t *testing.T) {
	for _, size := range worlds {
		t.Run(rankName(size), func(t *testing.T) {
			w := newWorld(t, size, nil)
			t.Run("float32", simpleReduce[float32](w))
			t.Run("float64", simpleReduce[float64](w))
			t.Run("int32", simpleReduce[int32](w))
			t.Run("int64", simpleReduce[int64](w))
			t.Run("uint8", simpleReduce[uint8](w))
			t.Run("named", simpleReduce[myFloat](w))
		})
	}
}

// torch's coalesced case, and its stress test: [i+rank] sums to i*W + W(W-1)/2.
func TestAllReduceBackToBack(t *testing.T) {
	const size = 4
	w := newWorld(t, size, nil)
	must(t, testkit.Each(size, func(rank int) error {
		for i := range 1000 {
			buf := []int64{int64(i + rank), int64((rank + 1) * (rank + 1))}
			if err := AllReduce(t.Context(), w[rank], buf, Sum); err != nil {
				return err
			}
			if want := []int64{int64(i*size + size*(size-1)/2), size * (size + 1) * (2*size + 1) / 6}; !slices.Equal(buf, want) {
				return fmt.Errorf("call %d: %v, want %v", i, buf, want)
			}
		}
		return nil
	}))
}

func TestAllReduceWrapsAndExtremes(t *testing.T) {
	w := newWorld(t, 2, nil)
	nan, negative := math.NaN(), math.Copysign(0, -1)
	must(t, testkit.Each(2, func(rank int) error {
		// uint8 200+200 wraps to 144 (reference/collectives.md §3.1).
		if err := wantReduced(t, w[rank], Sum, []uint8{200}, []uint8{144}); err != nil {
			return err
		}
		if err := wantReduced(t, w[rank], Sum, []int32{math.MaxInt32}, []int32{-2}); err != nil {
			return err
		}
		// The same section's NaN case, which torch answers by operand order: here NaN propagates.
		in := [][]float64{{2, nan, 0, math.Inf(1)}, {nan, 1, negative, math.Inf(-1)}}[rank]
		if err := wantReduced(t, w[rank], Min, in, []float64{nan, nan, negative, math.Inf(-1)}); err != nil {
			return err
		}
		return wantReduced(t, w[rank], Max, in, []float64{nan, nan, 0, math.Inf(1)})
	}))
}

func wantReduced[T Number](t *testing.T, c *Comm, op Op, in, want []T) error {
	buf := slices.Clone(in)
	if err := AllReduce(t.Context(), c, buf, op); err != nil {
		return err
	}
	for i := range buf {
		bothNaN := buf[i] != buf[i] && want[i] != want[i]
		sameSign := math.Signbit(float64(buf[i])) == math.Signbit(float64(want[i]))
		if !bothNaN && (buf[i] != want[i] || !sameSign) {
			return fmt.Errorf("%v of %v: element %d is %v, want %v", op, in, i, buf[i], want[i])
		}
	}
	return nil
}

// MPICH's allred_float: +1e6 on one rank, -1e6 on another, 1e-2 elsewhere. The
// result may round in many ways, but to the same bits on every rank, and in every run.
func TestAllReduceSameBits(t *testing.T) {
	const size, n = 5, 23
	var first [][]float32
	for run := range 3 {
		w := newWorld(t, size, nil)
		var results [][]float32
		for a := range size {
			for b := range size {
				if a == b {
					continue
				}
				bufs := make([][]float32, size)
				must(t, testkit.Each(size, func(rank int) error {
					x := float32(1e-2)
					switch rank {
					case a:
						x = 1e6
					case b:
						x = -1e6
					}
					bufs[rank] = slices.Repeat([]float32{x}, n)
					return AllReduce(t.Context(), w[rank], bufs[rank], Sum)
				}))
				for rank, buf := range bufs {
					if !sameBits(buf, bufs[0]) {
						t.Fatalf("big on %d, -big on %d: rank %d has %v, rank 0 has %v", a, b, rank, buf, bufs[0])
					}
				}
				results = append(results, bufs[0])
			}
		}
		if run == 0 {
			first = results
		}
		for i, result := range results {
			if !sameBits(result, first[i]) {
				t.Fatalf("run %d, case %d: %v, the first time %v", run, i, result, first[i])
			}
		}
	}
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// Random sums against the order that AllReduce documents: element j of chunk k
// starts at rank k and goes round the ring, each rank adding what arrives to its own.
func TestAllReduceOrder(t *testing.T) {
	ws := map[int][]*Comm{}
	for _, size := range []int{1, 2, 3, 5} {
		ws[size] = newWorld(t, size, nil)
	}
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.SampledFrom([]int{1, 2, 3, 5}).Draw(rt, "size")
		n := rapid.IntRange(0, 40).Draw(rt, "n")
		in := make([][]float32, size)
		for rank := range in {
			in[rank] = rapid.SliceOfN(rapid.Float32(), n, n).Draw(rt, fmt.Sprint("rank ", rank))
		}
		want := make([]float32, n)
		for k := range size {
			lo, hi := bounds(k, n, size)
			for j := lo; j < hi; j++ {
				sum := in[k][j]
				for s := 1; s < size; s++ {
					sum = in[(k+s)%size][j] + sum
				}
				want[j] = sum
			}
		}
		err := errors.Join(testkit.Each(size, func(rank int) error {
			buf := slices.Clone(in[rank])
			if err := AllReduce(t.Context(), ws[size][rank], buf, Sum); err != nil {
				return err
			}
			if !slices.EqualFunc(buf, want, func(x, y float32) bool {
				return x != x && y != y || math.Float32bits(x) == math.Float32bits(y)
			}) {
				return fmt.Errorf("rank %d has %v, want %v", rank, buf, want)
			}
			return nil
		})...)
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// bounds deals n elements to chunks one by one, the slow way.
func bounds(k, n, size int) (lo, hi int) {
	lengths := make([]int, size)
	for j := range n {
		lengths[j%size]++
	}
	for _, length := range lengths[:k] {
		lo += length
	}
	return lo, lo + lengths[k]
}

// torch's broadcast test: each rank is root once, and gives its rank.
func TestBroadcast(t *testing.T) {
	for _, size := range worlds {
		t.Run(rankName(size), func(t *testing.T) {
			w := newWorld(t, size, nil)
			for _, n := range countsFor(size) {
				for root := range size {
					must(t, testkit.Each(size, func(rank int) error {
						buf := make([]int32, n)
						for i := range buf {
							buf[i] = int32(rank<<24 + i)
						}
						if err := Broadcast(t.Context(), w[rank], buf, root); err != nil {
							return err
						}
						for i := range buf {
							if want := int32(root<<24 + i); buf[i] != want {
								return fmt.Errorf("%d from rank %d: element %d is %#x, want %#x", n, root, i, buf[i], want)
							}
						}
						return nil
					}))
				}
			}
		})
	}
}

// No rank leaves a barrier before all have entered it.
func TestBarrier(t *testing.T) {
	for _, size := range worlds {
		t.Run(rankName(size), func(t *testing.T) {
			w := newWorld(t, size, nil)
			for last := range size {
				entered, left := make(chan int, size), make(chan int, size)
				release := make(chan struct{})
				errs := make(chan []error, 1)
				go func() {
					errs <- testkit.Each(size, func(rank int) error {
						if rank == last {
							<-release
						}
						entered <- rank
						err := w[rank].Barrier(t.Context())
						left <- rank
						return err
					})
				}()
				for range size - 1 {
					<-entered
				}
				if len(left) > 0 {
					t.Errorf("rank %d left the barrier before rank %d came", <-left, last)
				}
				close(release)
				must(t, <-errs)
			}
		})
	}
}

func TestMixedSequence(t *testing.T) {
	const size = 3
	w := newWorld(t, size, nil)
	must(t, testkit.Each(size, func(rank int) error {
		for i := range 200 {
			x := []float64{float64(rank)}
			if err := Broadcast(t.Context(), w[rank], x, i%size); err != nil {
				return err
			}
			if err := AllReduce(t.Context(), w[rank], x, Sum); err != nil {
				return err
			}
			if err := w[rank].Barrier(t.Context()); err != nil {
				return err
			}
			if x[0] != float64(i%size*size) {
				return fmt.Errorf("round %d: %v", i, x)
			}
		}
		return nil
	}))
}

func TestNoAllocations(t *testing.T) {
	w := newWorld(t, 2, nil)
	rounds, done := make(chan bool), make(chan error)
	defer close(rounds)
	bufs := [2][]float32{make([]float32, 200_000), make([]float32, 200_000)}
	all := func(rank int) error {
		if err := AllReduce(t.Context(), w[rank], bufs[rank], Sum); err != nil {
			return err
		}
		if err := Broadcast(t.Context(), w[rank], bufs[rank], 0); err != nil {
			return err
		}
		return w[rank].Barrier(t.Context())
	}
	go func() {
		for range rounds {
			done <- all(1)
		}
	}()
	allocs := testing.AllocsPerRun(100, func() {
		rounds <- true
		if err := all(0); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if allocs >= 1 {
		t.Errorf("%v allocations for three collectives of two ranks", allocs)
	}
}

func TestChunk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 100).Draw(t, "n")
		parts := rapid.IntRange(1, 20).Draw(t, "parts")
		i := rapid.IntRange(-40, 40).Draw(t, "i")
		s := make([]int, n)
		for j := range s {
			s[j] = j
		}
		lo, hi := bounds(((i%parts)+parts)%parts, n, parts)
		if got := chunk(s, i, parts); !slices.Equal(got, s[lo:hi]) {
			t.Fatalf("chunk %d of %d of %d elements is %v, want %v", i, parts, n, got, s[lo:hi])
		}
	})
}

func TestFrames(t *testing.T) {
	per := frameBytes / int(unsafe.Sizeof(float64(0)))
	for _, tt := range []struct{ n, want int }{{0, 1}, {1, 1}, {per, 1}, {per + 1, 2}, {3 * per, 3}} {
		s := make([]float64, tt.n)
		got := frames[float64](tt.n)
		if got != tt.want {
			t.Errorf("%d elements in %d frames, want %d", tt.n, got, tt.want)
		}
		total := 0
		for i := range got {
			total += len(frame(s, i))
		}
		if total != tt.n {
			t.Errorf("frames of %d elements hold %d", tt.n, total)
		}
	}
}

func TestElements(t *testing.T) {
	type other int64
	for _, tt := range []struct {
		got  element
		want string
	}{
		{elementOf[float32](), "float32"}, {elementOf[float64](), "float64"}, {elementOf[int32](), "int32"},
		{elementOf[int64](), "int64"}, {elementOf[uint8](), "uint8"}, {elementOf[myFloat](), "float32"}, {elementOf[other](), "int64"},
	} {
		if elementNames[tt.got] != tt.want {
			t.Errorf("got %s, want %s", elementNames[tt.got], tt.want)
		}
	}
}
