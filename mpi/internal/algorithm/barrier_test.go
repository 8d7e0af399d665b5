package algorithm

import "testing"

// No rank leaves a barrier before the last has come to it.
func TestBarrierWaitsForAll(t *testing.T) {
	for _, e := range Barriers() {
		t.Run(e.Name, func(t *testing.T) {
			for size := 2; size <= 9; size++ {
				for late := range size {
					_, errs := localGroup{}.Try(size, func(p *localPort) error {
						if p.rank == late {
							return nil
						}
						return e.Run(p)
					})
					for rank, err := range errs {
						if rank != late && err == nil {
							t.Errorf("of %d ranks, rank %d did not wait for rank %d", size, rank, late)
						}
					}
				}
			}
		})
	}
}
