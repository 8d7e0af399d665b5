package mpi

import (
	"math"
	"math/rand/v2"
	"testing"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/model"
)

// A deterministic Comm chooses an algorithm that keeps the canonical order, whatever messages cost and however long the buffer is. Another
// Comm sometimes chooses a faster algorithm that does not keep it, but never for an operation that does not commute.
func TestDeterministicCommChoosesCanonicalAlgorithms(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	left := NewOp("left", false, func(dst, left, _ []float32) { copy(dst, left) })
	buf := make([]byte, 1<<23)
	others := 0
	for _, size := range []int{2, 5, 8, 16} {
		k := newWorldOn(t, "local", size, nil)[0].core
		for range 500 {
			random := func(least float64) float64 { return least * math.Exp2(20*dice.Float64()) }
			m := algorithm.Machine{Alpha: random(1e-8), Beta: random(1e-12), Gamma: random(1e-12)}
			k.world.near, k.world.far = model.Uniform(m), model.Uniform(m)
			n := 1 << dice.IntN(24)
			for _, tt := range []struct {
				deterministic bool
				op            Op
			}{{true, Sum}, {false, Sum}, {true, left}, {false, left}} {
				k.world.config.Deterministic = tt.deterministic
				var o operation
				reductionOf(&o, allReduceCall, []float32{}, tt.op)
				o.out = buf[:n]
				if err := k.choose(&o); err != nil {
					t.Fatal(err)
				}
				canonical := conformity[0].algorithms(size)[o.name]
				switch {
				case canonical:
				case tt.deterministic || tt.op == left:
					t.Errorf("%d ranks, %d bytes, %+v, deterministic %v, %v: chose %q", size, n, m, tt.deterministic, tt.op, o.name)
				default:
					others++
				}
			}
		}
	}
	if others == 0 {
		t.Error("no algorithm but canonical ones was ever chosen: the test shows nothing")
	}
}
