package collbench

import (
	"fmt"
	"slices"
	"testing"

	"ddpbatch/mpi"
)

// The mixer gives the same values as other implementations of MurmurHash3's fmix32.
func TestMixerIsMurmurHash3s(t *testing.T) {
	for x, want := range map[uint32]uint32{0: 0, 1: 0x514e28b7, 2: 0x30f4c306} {
		if got := mixed(x); got != want {
			t.Errorf("%d: %#x, want %#x", x, got, want)
		}
	}
}

func TestPatternsDifferByRankAndIteration(t *testing.T) {
	f := formula{noOp, 16}
	seen := map[string]string{}
	for rank := range 16 {
		for iteration := 1; iteration <= 4; iteration++ {
			p := f.pattern(rank, iteration)
			name := fmt.Sprintf("rank %d, iteration %d", rank, iteration)
			if other, ok := seen[fmt.Sprint(p[:64])]; ok {
				t.Errorf("%s begins as %s", name, other)
			}
			seen[fmt.Sprint(p[:64])] = name
			for _, shift := range []int{1, 2, 8, 64, 1024, 4096 % patternPeriod} {
				same := 0
				for i := range p {
					if p[i] == p[(i+shift)%patternPeriod] {
						same++
					}
				}
				if same > patternPeriod/4 { // by chance 1 in 8 are equal
					t.Errorf("%s: %d of %d elements are those %d before them", name, same, patternPeriod, shift)
				}
			}
		}
		if p := f.pattern(rank, 0); slices.Max(p) != 0 || slices.Min(p) != 0 {
			t.Error("iteration 0 is not all zeros")
		}
	}
}

func TestReducedCombinesAllRanks(t *testing.T) {
	const iteration, i = 3, 1000
	for op, combine := range map[operation]func(a, b int64) int64{
		opSum:  func(a, b int64) int64 { return a + b },
		opProd: func(a, b int64) int64 { return a * b },
		opMin:  func(a, b int64) int64 { return min(a, b) },
		opMax:  func(a, b int64) int64 { return max(a, b) },
	} {
		f := formula{op, 3}
		want := f.value(0, i, iteration)
		for last := range 3 {
			if last > 0 {
				want = combine(want, f.value(last, i, iteration))
			}
			if got := f.reduced(last, iteration)[i]; got != want {
				t.Errorf("%s of ranks 0 to %d: %d, want %d", op.name, last, got, want)
			}
		}
	}
}

// bfloat16 and float16 represent the results exactly.
func TestReducedIsSmall(t *testing.T) {
	for _, ranks := range []int{2, 36, 37, 256, 257, 1024} {
		for _, x := range (formula{opSum, ranks}).reduced(ranks-1, 1) {
			if x < 0 || x > 256 {
				t.Fatalf("%d ranks: a sum is %d, beyond what bfloat16 counts to", ranks, x)
			}
		}
		for _, x := range (formula{opProd, ranks}).reduced(ranks-1, 1) {
			if x < 1 || x > 1<<32 || x&(x-1) != 0 {
				t.Fatalf("%d ranks: a product is %d, and no power of two up to 2^32", ranks, x)
			}
		}
	}
}

func TestCountWrongCountsEverySpoiledElement(t *testing.T) {
	p := formula{noOp, 2}.pattern(0, 1)
	for _, at := range []int{0, 1, patternPeriod - 1, patternPeriod, 5*patternPeriod + 7} {
		for _, n := range []int{0, 1, patternPeriod, 3*patternPeriod + 2} {
			buf := make([]int64, n)
			for i := range buf {
				buf[i] = -1
			}
			if got := countWrong(buf, p, at); got != int64(n) {
				t.Errorf("at %d: %d of %d spoiled elements countWrong", at, got, n)
			}
			long := make([]int64, at%patternPeriod+n)
			spread(long, p)
			for i, x := range long {
				if x != p[i%patternPeriod] {
					t.Fatalf("element %d is %d", i, x)
				}
			}
			buf = long[at%patternPeriod:]
			if got := countWrong(buf, p, at); got != 0 {
				t.Errorf("at %d: %d of %d elements countWrong, want none", at, got, n)
			}
			if n > 0 {
				buf[n-1]++
				if got := countWrong(buf, p, at); got != 1 {
					t.Errorf("at %d: %d elements countWrong, want the last one", at, got)
				}
			}
		}
	}
	// a block in the place of its neighbor is noticed
	buf := make([]int64, 100)
	spread(buf, p)
	if countWrong(buf, p, 100) == 0 {
		t.Error("a block that lies 100 elements off looks right")
	}
}

// The bits are those of IEEE 754's binary16, and for bfloat16 those of the upper half of its binary32.
func TestHalvesAreThoseOfIEEE754(t *testing.T) {
	for x, want := range map[int64]struct {
		float  mpi.Float16
		bfloat mpi.BFloat16
	}{
		0: {0, 0}, 1: {0x3c00, 0x3f80}, -1: {0xbc00, 0xbf80}, 2: {0x4000, 0x4000}, 7: {0x4700, 0x40e0}, 252: {0x5be0, 0x437c},
		256: {0x5c00, 0x4380}, 1 << 15: {0x7800, 0x4700}, 1 << 16: {0x7c00, 0x4780}, 1 << 32: {0x7c00, 0x4f80},
	} {
		if got := float16Of(x); got != want.float {
			t.Errorf("float16 of %d is %#x, want %#x", x, uint16(got), uint16(want.float))
		}
		if got := bfloat16Of(x); got != want.bfloat {
			t.Errorf("bfloat16 of %d is %#x, want %#x", x, uint16(got), uint16(want.bfloat))
		}
	}
}
