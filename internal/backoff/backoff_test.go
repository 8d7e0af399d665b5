package backoff

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestPausesDoubleUpToTheMost: each pause is between half and all of a bound, and the bound doubles up to Most.
func TestPausesDoubleUpToTheMost(t *testing.T) {
	b := Backoff{First: 10 * time.Millisecond, Most: 70 * time.Millisecond}
	for range 100 {
		for _, bound := range []time.Duration{10, 20, 40, 70, 70, 70} {
			bound *= time.Millisecond
			if p := b.Next(); p < bound/2 || p > bound {
				t.Fatalf("a pause of %v, want one from %v to %v", p, bound/2, bound)
			}
		}
		b.Reset()
	}
}

// TestExtremeBoundsHavePauses: the shortest and the longest bounds also give valid pauses.
func TestExtremeBoundsHavePauses(t *testing.T) {
	for _, b := range []Backoff{
		{First: 1, Most: 1}, {First: 1, Most: 3}, {First: time.Hour, Most: time.Second}, {First: 1, Most: math.MaxInt64 / 2},
	} {
		for range 100 {
			if p := b.Next(); p < 0 || p > b.Most {
				t.Fatalf("%+v: a pause of %v", b, p)
			}
		}
	}
}

// TestPausesDiffer: processes that begin together do not retry together.
func TestPausesDiffer(t *testing.T) {
	seen := map[time.Duration]bool{}
	const processes = 1000
	for range processes {
		b := Backoff{First: time.Second, Most: time.Second}
		seen[b.Next()] = true
	}
	if len(seen) < processes*9/10 {
		t.Errorf("%d pauses have %d values", processes, len(seen))
	}
}

func TestWaitTakesEachPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, begin := Backoff{First: time.Second, Most: 4 * time.Second}, time.Now()
		for range 4 {
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 5500*time.Millisecond || took > 11*time.Second {
			t.Errorf("pauses of at most 1, 2, 4 and 4 s took %v", took)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b, begin := Backoff{First: time.Hour, Most: time.Hour}, time.Now()
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}
