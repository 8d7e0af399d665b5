package rundir

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

func TestClaimAfter(t *testing.T) {
	d := create1(t, t.TempDir(), "test")
	first, err := d.ClaimAttempt()
	must(t, err)
	second, err := d.ClaimAfter(first)
	if err != nil || second != first+1 {
		t.Fatalf("claimed %d, %v", second, err)
	}
	if info, err := os.Stat(d.LogsPath(second)); err != nil || !info.IsDir() {
		t.Errorf("it has no folder for logs: %v", err)
	}
	for range 2 {
		if n, err := d.ClaimAfter(first); !errors.Is(err, ErrSuperseded) {
			t.Errorf("the first attempt claimed %d, %v", n, err)
		}
	}
	if newest, err := d.NewestAttempt(); err != nil || newest != second {
		t.Errorf("the newest is %d, %v", newest, err)
	}
}

// Of a job and its successor, one has the next attempt, and the other knows.
func TestClaimAfterBesideAnotherJob(t *testing.T) {
	for range 50 {
		d := create1(t, t.TempDir(), "test")
		held, err := d.ClaimAttempt()
		must(t, err)
		var went atomic.Int32
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				switch _, err := d.ClaimAfter(held); {
				case err == nil:
					went.Add(1)
				case !errors.Is(err, ErrSuperseded):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if went.Load() != 1 {
			t.Fatalf("%d went on", went.Load())
		}
	}
}
