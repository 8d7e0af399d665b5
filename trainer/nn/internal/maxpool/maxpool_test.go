package maxpool

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var special = []float32{0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	math.Float32frombits(0xffc00000), math.SmallestNonzeroFloat32, -math.MaxFloat32}

func floats(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch x[i] = float32(r.NormFloat64()); r.IntN(8) {
		case 0:
			x[i] = special[r.IntN(len(special))]
		case 1:
			x[i] = float32(r.IntN(3)) // often equal to other values
		}
	}
	return x
}

// bits returns the bits of x, the same for every NaN.
func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		if b[i] = math.Float32bits(v); v != v {
			b[i] = math.Float32bits(float32(math.NaN()))
		}
	}
	return b
}

// Assembly gives the results of the plain loops, and writes nothing after the slices.
func TestAssemblyIsThePlainLoop(t *testing.T) {
	if !assembly {
		t.Skip("this build or CPU has no assembly")
	}
	const guard = 64
	r := rand.New(rand.NewPCG(1, 2))
	for width := 1; width <= 35; width++ {
		for _, rows := range []int{0, 1, 2, 3, 9, 20} {
			n := rows * width
			x, dy := floats(r, 4*n+guard), floats(r, n+guard)
			y, dx := floats(r, n+guard), floats(r, 4*n+guard)
			from := make([]uint8, n+guard)
			wantY, wantDX, wantFrom := slices.Clone(y), slices.Clone(dx), slices.Clone(from)
			for _, c := range []struct {
				floor   float32
				element uint8
			}{{0, Nowhere}, {float32(math.Inf(-1)), 0}} {
				Max(y[:n], from[:n], x[:4*n], width, c.floor, c.element)
				plainMax(wantY[:n], wantFrom[:n], x[:4*n], width, c.floor, c.element)
				if !slices.Equal(bits(y), bits(wantY)) || !slices.Equal(from, wantFrom) {
					t.Fatalf("Max of %d x %d above %g differs", rows, width, c.floor)
				}
				Spread(dx[:4*n], from[:n], dy[:n], width)
				plainSpread(wantDX[:4*n], from[:n], dy[:n], width)
				if !slices.Equal(bits(dx), bits(wantDX)) {
					t.Fatalf("Spread to %d x %d above %g differs", rows, width, c.floor)
				}
			}
		}
	}
}

// The results are also the same for a batch that is longer than one piece.
func TestLongBatchIsThePlainLoop(t *testing.T) {
	const width, rows = 3, piece
	r := rand.New(rand.NewPCG(3, 4))
	x := floats(r, 4*width*rows)
	y, from := make([]float32, width*rows), make([]uint8, width*rows)
	want, wantFrom := slices.Clone(y), slices.Clone(from)
	Max(y, from, x, width, 0, Nowhere)
	plainMax(want, wantFrom, x, width, 0, Nowhere)
	if !slices.Equal(bits(y), bits(want)) || !slices.Equal(from, wantFrom) {
		t.Error("Max differs")
	}
	Spread(x, from, y, width)
	wantX := make([]float32, len(x))
	plainSpread(wantX, from, y, width)
	if !slices.Equal(bits(x), bits(wantX)) {
		t.Error("Spread differs")
	}
}

func TestMaximaAreThoseByHand(t *testing.T) {
	x := []float32{
		1, 2, -1, -2,
		4, 3, -3, -4,
		5, 5, 0, 0,
		5, 5, 0, float32(math.NaN()),
	}
	y, from := make([]float32, 4), make([]uint8, 4)
	Max(y, from, x, 2, 0, Nowhere)
	if !slices.Equal(y[:3], []float32{4, 0, 5}) || y[3] == y[3] || !slices.Equal(from, []uint8{2, Nowhere, 0, 3}) {
		t.Errorf("Max gives %v from %v", y, from)
	}
	dx := make([]float32, 16)
	Spread(dx, from, []float32{1, 2, 3, 4}, 2)
	if !slices.Equal(dx, []float32{0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 4}) {
		t.Errorf("Spread gives %v", dx)
	}
}

func TestMisfitsPanic(t *testing.T) {
	for i, f := range []func(){
		func() { Max(make([]float32, 3), make([]uint8, 3), make([]float32, 12), 2, 0, 0) },
		func() { Max(make([]float32, 2), make([]uint8, 1), make([]float32, 8), 2, 0, 0) },
		func() { Spread(make([]float32, 7), make([]uint8, 2), make([]float32, 2), 2) },
		func() { Max(nil, nil, nil, 0, 0, 0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("misfit %d does not panic", i)
				}
			}()
			f()
		}()
	}
}

func BenchmarkMax(b *testing.B) {
	for _, width := range []int{7, 14, 64} {
		b.Run(fmt.Sprint("width", width), func(b *testing.B) {
			const rows = 512
			x := floats(rand.New(rand.NewPCG(1, 2)), 4*rows*width)
			y, from := make([]float32, rows*width), make([]uint8, rows*width)
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				Max(y, from, x, width, 0, Nowhere)
			}
		})
	}
}
