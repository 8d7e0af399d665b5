package mpi

import (
	"errors"
	"fmt"
	"runtime/debug"
	"testing"

	"ddpbatch/internal/testkit"
)

// Gloo's broadcast of 512 Mi - 1 elements, and MPICH's gather_big: lengths in bytes that 31 bits do not hold.
func TestHuge(t *testing.T) {
	if *conformRounds == 1 {
		t.Skip("takes 8 GiB of memory: only with -args -rounds 2, or more")
	}
	const n, block = 512<<20 - 1, 1<<31 + 3
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			debug.FreeOSMemory()
			w := newWorldOn(t, over, 2, nil)
			must(t, testkit.Each(2, func(rank int) error {
				buf := make([]float32, n)
				buf[n-1] = float32(rank + 1)
				if err := Broadcast(t.Context(), w[rank], buf, 1); err != nil {
					return err
				}
				if err := AllReduce(t.Context(), w[rank], buf, Sum); err != nil {
					return err
				}
				if buf[n-1] != 4 || buf[0] != 0 {
					return fmt.Errorf("the last element is %v, the first %v", buf[n-1], buf[0])
				}
				return nil
			}))
			debug.FreeOSMemory()
			must(t, testkit.Each(2, func(rank int) error {
				if rank == 1 {
					block := make([]uint8, block)
					block[len(block)-1] = 7
					return errors.Join(GatherV(t.Context(), w[rank], nil, block, nil, 0), Send(t.Context(), w[rank], block, 0, 1))
				}
				out := make([]uint8, 2+block)
				if err := GatherV(t.Context(), w[rank], out, out[:2], []int{2, block}, 0); err != nil {
					return err
				}
				if out[1+block] != 7 || out[block] != 0 {
					return fmt.Errorf("the last element is %v, that before %v", out[1+block], out[block])
				}
				clear(out[block:])
				if s, err := Recv(t.Context(), w[rank], out, 1, 1); err != nil || s.Count != block || out[block-1] != 7 {
					return fmt.Errorf("the message: %+v, %w; the last element is %v", s, err, out[block-1])
				}
				return nil
			}))
		})
	}
}
