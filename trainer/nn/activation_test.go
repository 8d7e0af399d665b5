package nn

import (
	"math"
	"slices"
	"testing"
)

func ones(rows, cols int) Matrix {
	m := NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = 1
	}
	return m
}

// Dropout keeps the mean and the share of elements that its probability says. The bounds are 5 standard deviations of n fair draws, so
// a correct generator fails for one seed in a million.
func TestDropoutKeepsMeanAndShare(t *testing.T) {
	const n = 100_000
	x := ones(100, n/100)
	for _, p := range []float64{0.1, 0.5, 0.9} {
		d := NewDropout(p, 3)
		y := d.Forward(&Pass{Training: true, Seed: 7}, x)
		kept, neighbours := 0.0, 0.0
		for i, v := range y.Data {
			switch v {
			case float32(1 / (1 - p)):
				kept++
				if i > 0 && y.Data[i-1] != 0 {
					neighbours++
				}
			case 0:
			default:
				t.Fatalf("p %g: element %d is %g", p, i, v)
			}
		}
		if want, deviation := n*(1-p), math.Sqrt(n*p*(1-p)); math.Abs(kept-want) > 5*deviation {
			t.Errorf("p %g: %g of %d are kept, want %g", p, kept, n, want)
		}
		// If neighbors are independent, a pair is kept with probability q². The variance is that of n draws and of their
		// overlap, below 3 n q².
		if want := n * (1 - p) * (1 - p); math.Abs(neighbours-want) > 5*math.Sqrt(3*want) {
			t.Errorf("p %g: %g pairs of neighbours are kept, want %g", p, neighbours, want)
		}
	}
}

func TestDropoutIsAFunctionOfSeedAndStream(t *testing.T) {
	x := ones(4, 33)
	mask := func(seed, stream uint64) []float32 {
		return NewDropout(0.5, stream).Forward(&Pass{Training: true, Seed: seed}, x).Data
	}
	first := mask(1, 1)
	if !slices.Equal(first, mask(1, 1)) {
		t.Error("the same seed and stream drop other elements")
	}
	for _, other := range [][2]uint64{{2, 1}, {1, 2}, {1 + 1<<32, 1}, {1, 1 + 1<<32}} {
		if slices.Equal(first, mask(other[0], other[1])) {
			t.Errorf("seed %d and stream %d drop what seed 1 and stream 1 do", other[0], other[1])
		}
	}
	d := NewDropout(0.5, 1)
	d.Forward(&Pass{Training: true, Seed: 1}, x)
	if dx := d.Backward(&Pass{Training: true, Seed: 9}, x, true); !slices.Equal(dx.Data, first) {
		t.Error("Backward drops other elements than its Forward")
	}
}

func TestDropoutIsRightAtTheEdges(t *testing.T) {
	train := Pass{Training: true, Seed: 1}
	nan := Matrix{Rows: 1, Cols: 2, Data: []float32{float32(math.NaN()), float32(math.NaN())}}
	x := ones(3, 5)
	for name, got := range map[string]Matrix{
		"evaluation":     NewDropout(0.5, 1).Forward(new(Pass), x),
		"probability 0":  NewDropout(0, 1).Forward(&train, x),
		"probability 1":  NewDropout(1, 1).Forward(&train, x),
		"NaN is dropped": NewDropout(1, 1).Forward(&train, nan),
	} {
		for _, v := range got.Data {
			switch name {
			case "probability 1":
				if v != 0 {
					t.Errorf("%s: got %g, want 0", name, v)
				}
			case "NaN is dropped":
				if v == v {
					t.Errorf("%s: got %g, want NaN", name, v)
				}
			default:
				if v != 1 {
					t.Errorf("%s: got %g, want 1", name, v)
				}
			}
		}
	}
}

func BenchmarkDropout(b *testing.B) {
	x := ones(64, 1024)
	d := NewDropout(0.5, 1)
	b.SetBytes(4 * int64(len(x.Data)))
	for b.Loop() {
		d.Forward(&Pass{Training: true}, x)
	}
}
