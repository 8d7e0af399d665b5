package tile

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// kernels returns the kernels that can run on this CPU.
func kernels(t *testing.T) []kernel {
	all := append(assembly(), plain)
	if len(all) == 1 {
		t.Log("no assembly here: of another CPU, or left out by a tag")
	}
	return all
}

// panel returns n float32 values. Their sizes are far apart, so that every other order of additions rounds differently. If special is true,
// some are special values. The panel's address is only a multiple of 8, and NaN surround it in memory.
func panel(rng *rand.Rand, n int, special bool) []float64 {
	const margin = 32
	from := margin + rng.IntN(8)
	whole := slices.Repeat([]float64{math.NaN()}, from+n+margin)
	for i := range n {
		v := float32(math.Ldexp(rng.NormFloat64(), rng.IntN(60)-30))
		if special && rng.IntN(20) == 0 {
			v = []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.NaN()), math.MaxFloat32,
				math.SmallestNonzeroFloat32}[rng.IntN(6)]
		}
		whole[from+i] = float64(v)
	}
	return whole[from : from+n : from+n]
}

// TestKernelsAddInTheDefinedOrder compares every kernel with the definition, bit for bit: each sum adds its products from the first
// to the last, and rounds after each.
func TestKernelsAddInTheDefinedOrder(t *testing.T) {
	for _, k := range kernels(t) {
		t.Run(k.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %#x", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			for round := range 400 {
				depth, special := rng.IntN(70), round%2 == 1
				a, b := panel(rng, depth*Rows, special), panel(rng, depth*Cols, special)
				got := (*Sums)(panel(rng, Rows*Cols, special))
				want := *got
				for i := range Rows {
					for j := range Cols {
						for l := range depth {
							product := float64(a[l*Rows+i] * b[l*Cols+j])
							want[i*Cols+j] += product
						}
					}
				}
				k.add(got, a, b)
				for i := range got {
					if math.Float64bits(got[i]) != math.Float64bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
						t.Fatalf("depth %d: element %d is %v, want %v", depth, i, got[i], want[i])
					}
				}
			}
		})
	}
}

func TestInnerDimensionMayBeCutAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const depth = 40
	a, b := panel(rng, depth*Rows, false), panel(rng, depth*Cols, false)
	for _, k := range kernels(t) {
		var whole Sums
		k.add(&whole, a, b)
		for cut := range depth + 1 {
			var parts Sums
			k.add(&parts, a[:cut*Rows], b[:cut*Cols])
			k.add(&parts, a[cut*Rows:], b[cut*Cols:])
			if parts != whole {
				t.Fatalf("%s: cut at %d it has other bits", k.name, cut)
			}
		}
	}
}

// TestKernelsRoundSumsAsDefined rounds sums halfway between two float32 values, sums that are too large or too small for float32, and
// special values.
func TestKernelsRoundSumsAsDefined(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	special := []float64{0, math.Copysign(0, -1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64, -0x1p-150,
		0x1.8p-149, 0x1.ffffffp127}
	for _, k := range kernels(t) {
		for range 1000 {
			c := (*Sums)(panel(rng, Rows*Cols, false))
			for i := range c {
				switch rng.IntN(4) {
				case 0:
					c[i] = special[rng.IntN(len(special))]
				case 1: // near halfway between two float32 values
					c[i] += math.Ldexp(c[i], -24)
				case 2:
					c[i] = math.Float64frombits(rng.Uint64())
				}
			}
			var got [Rows*Cols + 32]float32
			k.round((*[Rows * Cols]float32)(got[16:]), c)
			for i, v := range got {
				want := float32(0) // the memory around the result must not be written
				if i >= 16 && i < 16+len(c) {
					want = float32(c[i-16])
				}
				if math.Float32bits(v) != math.Float32bits(want) && (v == v || want == want) {
					t.Fatalf("%s: element %d is %v, want %v", k.name, i-16, v, want)
				}
			}
		}
	}
}

func TestPanelsThatDoNotFitPanic(t *testing.T) {
	for _, n := range [][2]int{{1, 0}, {Rows, 0}, {0, Cols}, {Rows, Cols - 1}, {2 * Rows, Cols}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("panels of %d and %d were taken", n[0], n[1])
				}
			}()
			Add(new(Sums), make([]float64, n[0]), make([]float64, n[1]))
		}()
	}
}

func BenchmarkAdd(b *testing.B) {
	const depth = 128
	x, y := make([]float64, depth*Rows), make([]float64, depth*Cols)
	for _, k := range append(assembly(), plain) {
		b.Run(k.name, func(b *testing.B) {
			var c Sums
			for b.Loop() {
				k.add(&c, x, y)
			}
			b.ReportMetric(2*Rows*Cols*depth*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
