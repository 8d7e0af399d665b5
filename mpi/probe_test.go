package mpi

import (
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/model"
)

// All ranks have the same costs on every transport. If there are links, the costs are measured.
func TestRanksHaveTheSameCosts(t *testing.T) {
	guess := model.Uniform(defaultMachine)
	for over, measured := range map[string]func(w *world) bool{
		"local": func(w *world) bool { return w.near == guess && w.far == guess },
		"tcp":   func(w *world) bool { return w.far.Exchange != guess.Exchange && w.far.Message != guess.Message },
		"shm":   func(w *world) bool { return w.near.Exchange != guess.Exchange && w.near.Message != guess.Message },
	} {
		t.Run(over, func(t *testing.T) {
			comms := newWorldOn(t, over, 3, nil)
			first := comms[0].core.world
			if !first.near.Usable() || !first.far.Usable() || !measured(first) {
				t.Errorf("near %+v, far %+v", first.near, first.far)
			}
			for rank, c := range comms {
				if w := c.core.world; w.near != first.near || w.far != first.far {
					t.Errorf("rank %d has %+v and %+v, rank 0 %+v and %+v", rank, w.near, w.far, first.near, first.far)
				}
			}
		})
	}
}

// Costs arrive as they were, except for the digits that do not fit in four bytes. Values that cannot be costs are replaced by a guess.
func TestCostsArriveOrAreAGuess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := algorithm.Machine{
			Alpha: math.Pow(10, rapid.Float64Range(-8, -2).Draw(t, "log alpha")),
			Beta:  math.Pow(10, rapid.Float64Range(-12, -6).Draw(t, "log beta")),
			Gamma: math.Pow(10, rapid.Float64Range(-12, -6).Draw(t, "log gamma")),
		}
		near, far := model.Uniform(m), model.Uniform(algorithm.Machine{Alpha: 2 * m.Alpha, Beta: 3 * m.Beta, Gamma: m.Gamma})
		gotNear, gotFar := decodeCosts(encodeCosts(&near, &far))
		for _, c := range [][2]model.Costs{{gotNear, near}, {gotFar, far}} {
			for _, ways := range [][2]model.Times{{c[0].Message, c[1].Message}, {c[0].Exchange, c[1].Exchange},
				{c[0].Reduction, c[1].Reduction}} {
				for i := range ways[0] {
					if math.Abs(ways[0][i]-ways[1][i]) > 1e-6*ways[1][i] {
						t.Fatalf("%v, want %v", ways[0], ways[1])
					}
				}
			}
		}
	})
	good := model.Uniform(algorithm.Machine{Alpha: 1e-6, Beta: 1e-9, Gamma: 1e-10})
	for _, x := range []float64{math.NaN(), math.Inf(1), -1e-9, 1e4} {
		bad := good
		bad.Exchange[2] = x
		near, far := decodeCosts(encodeCosts(&good, &bad))
		if near == far || far != model.Uniform(defaultMachine) || !near.Usable() {
			t.Errorf("%v: near %+v, far %+v", x, near, far)
		}
	}
}

// The number of a length that does not exist is an error, and no memory is touched.
func TestProbeRefusesUnknownLength(t *testing.T) {
	comms := newWorldOn(t, "local", 2, nil)
	errs := testkit.Each(2, func(rank int) error {
		k := comms[rank].core
		p := newProber(k, unix.Mmap)
		defer p.close()
		p.partner = 1 - rank
		if rank == 1 {
			return p.answer(t.Context())
		}
		var op engine.Op
		k.group.SendMessage(&op, 1, engine.Call{Collective: uint8(messageCall)}, []byte{byte(len(model.Lengths))})
		return k.group.Wait(t.Context(), &op)
	})
	if errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "length number 5") {
		t.Error(errs)
	}
}
