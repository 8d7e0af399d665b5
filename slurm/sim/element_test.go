package sim_test

import (
	"testing"

	"ddpbatch/slurm"
	"ddpbatch/slurm/sim"
)

func FuzzElements(f *testing.F) {
	f.Add("0-3%2")
	f.Add("1,5-9:2")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := slurm.ParseArray(text)
		if err != nil {
			return
		}
		ids := map[int]bool{}
		for _, e := range sim.Elements(a, 100) {
			if ids[e.OwnJobID()] || e.OwnJobID() < 100 {
				t.Errorf("%q: element %d has job id %d", text, e.Index, e.OwnJobID())
			}
			ids[e.OwnJobID()] = true
		}
	})
}
