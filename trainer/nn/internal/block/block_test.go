package block

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func floats(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// Copy and Add give each value of the block by definition, and do not change the values between rows and after the block.
func TestCopyAndAddAreTheirDefinitions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for width := range 40 {
		for _, rows := range []int{0, 1, 2, 5} {
			for _, gap := range []struct{ dst, src int }{{0, 0}, {3, 0}, {0, 3}, {1, 9}} {
				dst := View{floats(r, 6*(width+gap.dst)), width + gap.dst}
				src := View{floats(r, 6*(width+gap.src)), width + gap.src}
				copied, sums := slices.Clone(dst.Data), slices.Clone(dst.Data)
				for i := range rows {
					for j := range width {
						v := src.Data[i*src.Pitch+j]
						copied[i*dst.Pitch+j] = v
						sums[i*dst.Pitch+j] += v
					}
				}
				n := Size{rows, width}
				got := View{slices.Clone(dst.Data), dst.Pitch}
				if Copy(got, src, n); !slices.Equal(got.Data, copied) {
					t.Fatalf("Copy of %+v, %+v apart, differs", n, gap)
				}
				if Add(dst, src, n); !slices.Equal(dst.Data, sums) {
					t.Fatalf("Add of %+v, %+v apart, differs", n, gap)
				}
			}
		}
	}
}

// A block may end with its slice, but not after it. A call with a block that does not fit panics before it writes any value.
func TestMisfitsPanic(t *testing.T) {
	for _, c := range []struct {
		dst, src View
		n        Size
	}{
		{View{make([]float32, 16), 9}, View{make([]float32, 16), 8}, Size{2, 8}},
		{View{make([]float32, 16), 8}, View{make([]float32, 16), 9}, Size{2, 8}},
		{View{make([]float32, 16), 7}, View{make([]float32, 16), 8}, Size{2, 8}},
		{View{make([]float32, 16), 8}, View{make([]float32, 16), 7}, Size{2, 8}},
		{View{make([]float32, 16), 8}, View{make([]float32, 16), 8}, Size{-1, 8}},
		{View{make([]float32, 16), 8}, View{make([]float32, 16), 8}, Size{1, -8}},
		{View{nil, 8}, View{make([]float32, 16), 8}, Size{1, 8}},
	} {
		for name, f := range map[string]func(dst, src View, n Size){"Copy": Copy, "Add": Add} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s of %+v from %d values %d apart to %d values %d apart does not panic",
							name, c.n, len(c.src.Data), c.src.Pitch, len(c.dst.Data), c.dst.Pitch)
					}
				}()
				f(c.dst, c.src, c.n)
			}()
		}
	}
}

func BenchmarkBlock(b *testing.B) {
	n := Size{14, 14}
	dst, src := View{make([]float32, 16*16), 14}, View{make([]float32, 16*16), 16}
	b.Run("Copy", func(b *testing.B) {
		for b.Loop() {
			Copy(dst, src, n)
		}
	})
	b.Run("Add", func(b *testing.B) {
		for b.Loop() {
			Add(dst, src, n)
		}
	})
	b.Run("plain Copy", func(b *testing.B) {
		for b.Loop() {
			plainCopy(dst, src, n)
		}
	})
}
