package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// deaths has a rank die in the middle of each of everyCall, one after another. The others must be told who it
// was, shrink, and go on; groups that it was not of go on without. die ends the caller's life, told says that this rank knows;
// both are given the number of deaths before.
func deaths(ctx context.Context, c *Comm, die, told func(before int)) error {
	for i, tt := range everyCall {
		victim := (5*i + 3) % c.Size()
		pair, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return fmt.Errorf("after %d deaths: %w", i, err)
		}
		// All have made their pair when the first leaves the barrier.
		if err = c.Barrier(ctx); err == nil {
			if c.Rank() == victim {
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { die(i) })
			}
			err = untilBroken(ctx, c, tt)
		}
		if c.Rank() == victim {
			return nil
		}
		told(i)
		if err := blames(err, victim); err != nil {
			return fmt.Errorf("%s: %w", tt.name, err)
		}
		if err := AllReduce(ctx, pair, []int64{1}, Sum); (err != nil) != (c.Rank()/2 == victim/2) {
			return fmt.Errorf("%s: a pair of ranks, which are %v of the world, when rank %d died: %w", tt.name, pair.Ranks(), c.Ranks()[victim], err)
		}
		if err := pair.Close(); err != nil {
			return err
		}
		next, err := c.Shrink(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", tt.name, err)
		}
		if err := goesOn(ctx, next, slices.Delete(c.Ranks(), victim, victim+1)); err != nil {
			return fmt.Errorf("%s: %w", tt.name, err)
		}
		c = next
	}
	return nil
}

// blames is an error unless err says that this rank was lost.
func blames(err error, victim int) error {
	var peer *PeerError
	var abort *AbortError
	right := errors.As(err, &peer) && peer.Rank == victim || errors.As(err, &abort) && abort.Rank == victim
	if !errors.Is(err, ErrLost) || !right || !strings.Contains(err.Error(), fmt.Sprintf("rank %d: connection lost", victim)) {
		return fmt.Errorf("rank %d has died, and the error is: %w", victim, err)
	}
	return nil
}

// goesOn is an error unless c is made of these ranks of the world, and works.
func goesOn(ctx context.Context, c *Comm, ranks []int) error {
	if !slices.Equal(c.Ranks(), ranks) {
		return fmt.Errorf("the survivors are ranks %v of the world, want %v", c.Ranks(), ranks)
	}
	all := make([]int64, c.Size())
	if err := AllGather(ctx, c, all, []int64{int64(c.Rank())}); err != nil {
		return fmt.Errorf("the survivors: %w", err)
	}
	one := []int64{1}
	if err := AllReduce(ctx, c, one, Sum); err != nil {
		return fmt.Errorf("the survivors: %w", err)
	}
	if int(one[0]) != len(ranks) || int(all[len(ranks)-1]) != len(ranks)-1 {
		return fmt.Errorf("the survivors counted %d of them, and numbered them %v", one[0], all)
	}
	return nil
}

func TestDeathsWithinProcess(t *testing.T) {
	size := len(everyCall) + 2
	network := transport.NewNetwork(size)
	w := newLocal(t, network, nil)
	var died, told [64]atomic.Int64 // microseconds
	begin := time.Now()
	for rank, err := range testkit.Each(size, func(rank int) error {
		return deaths(t.Context(), w[rank],
			func(before int) {
				died[before].Store(time.Since(begin).Microseconds())
				network.Kill(rank)
			},
			func(before int) { told[before].Store(time.Since(begin).Microseconds()) }) // the last one stays
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	var times []time.Duration
	for i := range everyCall {
		times = append(times, time.Duration(told[i].Load()-died[i].Load())*time.Microsecond)
	}
	toldSoon(t, times)
}

// toldSoon logs how soon the last survivors were told of the deaths in each of everyCall. If testkit.IsLong, they must have been told of a
// quarter of them sooner than by the look that a waiting rank takes every second. Other work on the machine may delay the rest.
func toldSoon(t *testing.T, times []time.Duration) {
	t.Helper()
	for i, took := range times {
		t.Logf("%s: the last rank was told %v after the death", everyCall[i].name, took)
	}
	slices.Sort(times)
	if quarter := times[len(times)/4]; testkit.IsLong() && quarter > 500*time.Millisecond {
		t.Errorf("of %d deaths three quarters took more than %v", len(times), quarter)
	}
}
