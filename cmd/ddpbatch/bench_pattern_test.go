package main

import (
	"slices"
	"testing"
)

func TestReducedPattern(t *testing.T) {
	// By hand: rank r's element i is (i*(r+3) + seed) % 8; here seed 1, i = 2 of ranks 0, 1, 2: 7, 1, 3.
	const seed, i = 1, 2
	for op, want := range map[benchOp]int64{opSum: 11, opMin: 1, opMax: 7, opProd: 8} { // of products, 1 + n%2: 2, 2, 2
		if got := reducedPattern(op, 2, 3, seed)[i]; got != want {
			t.Errorf("%s: %v, want %v", op.name, got, want)
		}
	}
	if got := reducedPattern(opSum, 1, 3, seed)[i]; got != 8 { // ranks 0 and 1 alone
		t.Errorf("sum of ranks 0 and 1: %d, want 8", got)
	}
	for _, x := range reducedPattern(opSum, 2, 3, 0) {
		if x != 0 {
			t.Fatalf("seed 0 gives %v, want zeros", x)
		}
	}
	if slices.Equal(pattern(opSum, 0, 2, 1), pattern(opSum, 1, 2, 1)) {
		t.Error("two ranks have the same pattern")
	}
}

// Results stay within what bfloat16 and float16 hold exactly.
func TestReducedPatternIsSmall(t *testing.T) {
	for _, ranks := range []int{2, 36, 37, 256, 257, 1024} {
		for _, x := range reducedPattern(opSum, ranks-1, ranks, 1) {
			if x < 0 || x > 256 {
				t.Fatalf("%d ranks: a sum is %d, beyond what bfloat16 counts to", ranks, x)
			}
		}
		for _, x := range reducedPattern(opProd, ranks-1, ranks, 1) {
			if x < 1 || x > 1<<32 || x&(x-1) != 0 {
				t.Fatalf("%d ranks: a product is %d, and no power of two up to 2^32", ranks, x)
			}
		}
	}
}

func TestSpreadAndDiffer(t *testing.T) {
	p := pattern(opSum, 0, 2, 1)
	for _, at := range []int{0, 1, patternPeriod - 1, patternPeriod, 5*patternPeriod + 7} {
		for _, n := range []int{0, 1, patternPeriod, 3*patternPeriod + 2} {
			buf := make([]int64, n)
			for i := range buf {
				buf[i] = -1
			}
			if got := differ(buf, p, at); got != int64(n) {
				t.Errorf("at %d: %d of %d spoiled elements differ", at, got, n)
			}
			spread(buf, p, at)
			for i, x := range buf {
				if x != p[(at+i)%patternPeriod] {
					t.Fatalf("at %d: element %d is %d", at, i, x)
				}
			}
			if got := differ(buf, p, at); got != 0 {
				t.Errorf("at %d: %d of %d elements differ, want none", at, got, n)
			}
			if n > 0 {
				buf[n-1]++
				if got := differ(buf, p, at); got != 1 {
					t.Errorf("at %d: %d elements differ, want the last one", at, got)
				}
			}
		}
	}
	// a block in its neighbour's place is seen
	buf := make([]int64, 100)
	spread(buf, p, 0)
	if differ(buf, p, 100) == 0 {
		t.Error("a block that lies 100 elements off looks right")
	}
}
