package engine

import (
	"errors"
	"fmt"
	"testing"
)

// Nothing is allocated for a message in steady state, whether it is received at once, early, by polling or asleep.
func TestNoAllocations(t *testing.T) { // without the race detector
	overSome(t, func(t *testing.T, k kind) {
		for _, n := range []int{8, 100 << 10} {
			for _, early := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d_bytes/early=%v", n, early), func(t *testing.T) {
					w := newWorld(t, k, 2, nil)
					var s, r [2]Op
					var out, in [2][]byte
					for rank := range 2 {
						out[rank], in[rank] = make([]byte, n), make([]byte, n)
					}
					turns, done := make(chan uint64), make(chan error)
					defer close(turns)
					play := func(rank int, seq uint64) error {
						g := w.groups[rank]
						if err := begin(g, Call{Seq: seq}); err != nil {
							return err
						}
						if !early {
							g.Recv(&r[rank], 1-rank, in[rank])
						}
						g.Send(&s[rank], 1-rank, out[rank])
						if err := g.Wait(t.Context(), &s[rank]); err != nil {
							return err
						}
						if early {
							g.Recv(&r[rank], 1-rank, in[rank])
						}
						err := g.Wait(t.Context(), &r[rank])
						end(g)
						return err
					}
					go func() {
						for seq := range turns {
							done <- play(1, seq)
						}
					}()
					seq := uint64(0)
					allocs := testing.AllocsPerRun(300, func() {
						seq++
						turns <- seq
						if err := errors.Join(play(0, seq), <-done); err != nil {
							t.Error(err)
						}
					})
					if allocs >= 1 {
						t.Errorf("%v allocations for an exchange of two ranks", allocs)
					}
				})
			}
		}
	}, overTCP, overBoth)
}
