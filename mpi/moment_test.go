package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// Collectives of random kinds and lengths, back to back, until one rank's context ends at a random
// moment: every rank gets an error, soon, and none a wrong sum before.
func TestCancelAtAnyMoment(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		size := 2 + dice.IntN(4)
		victim, moment := dice.IntN(size), time.Duration(dice.IntN(20_000))*time.Microsecond
		shared := dice.Uint64()
		w := newWorldOn(t, transports[dice.IntN(len(transports))], size, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(moment, cancel)
		testkit.Within(t, testkit.Patience, func() {
			for rank, err := range testkit.Each(size, func(rank int) error {
				own := t.Context()
				if rank == victim {
					own = ctx
				}
				return untilError(own, w[rank], rand.New(rand.NewPCG(shared, 0)))
			}) {
				if rank == victim && !errors.Is(err, context.Canceled) || rank != victim && !errors.Is(err, ErrAborted) && !errors.Is(err, ErrLost) {
					t.Errorf("rank %d of %d, with rank %d cancelled after %v: %v", rank, size, victim, moment, err)
				}
			}
		})
		closeAll(w)
	}
}

// untilError calls what dice say, which are the same on all ranks.
func untilError(ctx context.Context, c *Comm, dice *rand.Rand) error {
	buf := make([]int32, 1<<18)
	for {
		part := buf[:dice.IntN(len(buf))>>dice.IntN(18)]
		root := dice.IntN(c.Size())
		for i := range part {
			part[i] = int32(i + c.Rank())
		}
		var err error
		var want int
		switch dice.IntN(3) {
		case 0:
			err, want = c.Barrier(ctx), -1
		case 1:
			err, want = Broadcast(ctx, c, part, root), root
		case 2:
			err, want = AllReduce(ctx, c, part, Max), c.Size()-1
		}
		if err != nil {
			return err
		}
		for i, x := range part {
			if want >= 0 && int(x) != i+want {
				return fmt.Errorf("element %d is %d, want %d", i, x, i+want)
			}
		}
	}
}
