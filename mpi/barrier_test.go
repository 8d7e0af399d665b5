package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

func TestMonitoredBarrier(t *testing.T) {
	everywhere(t, few, func(ctx context.Context, c *Comm) error {
		for range 20 {
			if err := c.MonitoredBarrier(ctx, testkit.Patience); err != nil {
				return err
			}
			if err := AllReduce(ctx, c, []int64{1}, Sum); err != nil {
				return err
			}
		}
		return nil
	})
}

// All present ranks get an error that names all missing ranks in order, and not before the time-out. This is torch's monitored_barrier.
func TestMonitoredBarrierNamesTheAbsent(t *testing.T) {
	for _, over := range transports {
		for _, missing := range [][]int{{1}, {3, 5}, {1, 2, 3, 4, 5}} {
			t.Run(over, func(t *testing.T) {
				// On a busy machine rank 0 may not hear from a present rank in time, and then names it as well. A longer time-out avoids
				// that.
				for timeout := 300 * time.Millisecond; !namesTheAbsent(t, over, missing, timeout); timeout *= 4 {
					t.Logf("within %v others are named, too", timeout)
				}
			})
		}
	}
}

// namesTheAbsent makes all but the missing ranks enter a monitored barrier, and checks their errors. It returns false, without further
// checks, if rank 0's error names more ranks than are missing and the time-out can still grow.
func namesTheAbsent(t *testing.T, over string, missing []int, timeout time.Duration) bool {
	t.Helper()
	const size = 6
	w := newWorldOn(t, over, size, nil)
	errs := testkit.Each(size, func(rank int) error {
		switch {
		case slices.Contains(missing, rank):
			return nil
		case rank > 0:
			return w[rank].MonitoredBarrier(t.Context(), testkit.Patience)
		}
		testkit.Eventually(t, "the others are in the barrier", func() bool { // rank 0's time-out decides
			return !slices.ContainsFunc(w[1:], func(c *Comm) bool { return !slices.Contains(missing, c.Rank()) && !c.isRunning() })
		})
		begin := time.Now()
		err := w[0].MonitoredBarrier(t.Context(), timeout)
		if took := time.Since(begin); took < timeout || took > timeout+testkit.Patience {
			t.Errorf("took %v", took)
		}
		return err
	})
	want := (&AbsentError{Ranks: missing, Timeout: timeout}).Error()
	var absent *AbsentError
	if errors.As(errs[0], &absent) && len(absent.Ranks) > len(missing) && 4*timeout < testkit.Patience {
		return false
	}
	if !errors.As(errs[0], &absent) || !slices.Equal(absent.Ranks, missing) || !errors.Is(errs[0], ErrTimeout) {
		t.Errorf("rank 0 got %v", errs[0])
	}
	for rank := 1; rank < size; rank++ {
		if slices.Contains(missing, rank) {
			continue
		}
		if !errors.Is(errs[rank], ErrTimeout) || !strings.Contains(errs[rank].Error(), want) {
			t.Errorf("rank %d got %v, want %q", rank, errs[rank], want)
		}
	}
	// A rank that comes late gets the error, too.
	if err := w[missing[0]].MonitoredBarrier(t.Context(), timeout); !errors.Is(err, ErrTimeout) {
		t.Errorf("rank %d, late, got %v", missing[0], err)
	}
	return true
}

func TestAbsentErrorNamesTheRanks(t *testing.T) {
	for want, ranks := range map[string][]int{
		"rank 4 has not come within 1s":          {4},
		"ranks 1, 2, 30 have not come within 1s": {1, 2, 30},
	} {
		if got := (&AbsentError{Ranks: ranks, Timeout: time.Second}).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Rank 0 alone in a barrier gets an error, not before the time-out. This is torch's barrier time-out.
func TestBarrierTimesOutWithoutTheOthers(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			promptly(t, func() time.Duration {
				w, timeout := newImpatient(t, over, 2, time.Second)
				begin := time.Now()
				err := w[0].Barrier(t.Context())
				took := time.Since(begin) - timeout
				if starved(err) {
					return again
				}
				want := fmt.Sprintf("rank 1: no progress for %v: it has not made a call yet", timeout)
				if took < 0 || !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v after the time-out: got %v", took, err)
				}
				return took
			})
		})
	}
}
