package mpi

import "testing"

// Explain has a time for each algorithm that may be chosen, and chooses one of them.
func TestExplainPredictsEveryAlgorithm(t *testing.T) {
	for _, over := range []string{"shm", "tcp"} {
		c := newWorldOn(t, over, 2, nil)[0]
		for kind, d := range collectives {
			if d.internal || len(collective(kind).traits()) == 0 {
				continue
			}
			for _, n := range []int{0, 128, 8 << 10, 1 << 20, 32 << 20} {
				predictions, err := c.Explain(d.name, n)
				if err != nil {
					t.Fatal(err)
				}
				chosen := 0
				for _, p := range predictions {
					if p.Refused == "" && p.Time <= 0 {
						t.Errorf("%s over %s, %d bytes: %s takes %v", d.name, over, n, p.Algorithm, p.Time)
					}
					if p.Chosen {
						chosen++
					}
				}
				if chosen != 1 {
					t.Errorf("%s over %s, %d bytes: %d are chosen of %+v", d.name, over, n, chosen, predictions)
				}
			}
		}
	}
}
