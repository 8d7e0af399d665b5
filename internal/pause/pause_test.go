package pause_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/pause"
)

func TestForWaitsUntilTimeOrContextEnds(t *testing.T) {
	tests := map[string]struct {
		d, limit, want time.Duration
		err            error
	}{
		"whole":     {d: time.Hour, limit: 2 * time.Hour, want: time.Hour},
		"cut short": {d: time.Hour, limit: time.Minute, want: time.Minute, err: context.DeadlineExceeded},
		"nothing":   {limit: time.Hour},
		"the past":  {d: -time.Hour, limit: time.Hour},
		"too late":  {limit: -1, err: context.DeadlineExceeded},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				begun := time.Now()
				if err := pause.For(ctx, test.d); err != test.err {
					t.Errorf("For(%v) with %v: %v, want %v", test.d, test.limit, err, test.err)
				}
				if err := pause.Until(ctx, begun.Add(test.d)); err != test.err {
					t.Errorf("Until, when For has waited: %v, want %v", err, test.err)
				}
				if took := time.Since(begun); took != test.want {
					t.Errorf("took %v, want %v", took, test.want)
				}
			})
		})
	}
}

func TestAwaitWaitsForAValueOrTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begun := make(chan int), time.Now()
		if v, came := pause.Await(c, time.Minute); came || time.Since(begun) != time.Minute {
			t.Errorf("%d, %t after %v; want nothing after a minute", v, came, time.Since(begun))
		}
		time.AfterFunc(time.Second, func() { c <- 7 })
		if v, came := pause.Await(c, time.Minute); v != 7 || !came {
			t.Errorf("%d, %t; want what was sent", v, came)
		}
		close(c)
		if v, came := pause.Await(c, time.Minute); v != 0 || !came {
			t.Errorf("%d, %t; want the end of the channel", v, came)
		}
	})
}

// The whole process is stopped for longer than Await may wait, as on a busy machine. The sender resumes together with Await, and Await
// still waits for it. Other work may keep only the sender from the processor for as long, but hardly in each try.
func TestAwaitSurvivesAStoppedProcess(t *testing.T) {
	for range 5 {
		if isAwaitedAfterAStop(t) {
			return
		}
	}
	t.Error("what was sent did not come")
}

func isAwaitedAfterAStop(t *testing.T) bool {
	t.Helper()
	const wake = `until grep -q "^State:.T" /proc/$0/status; do sleep 0.01; done; sleep 1.2; kill -CONT $0`
	waker := exec.Command("sh", "-c", wake, strconv.Itoa(os.Getpid()))
	if err := waker.Start(); err != nil {
		t.Fatal(err)
	}
	c := make(chan int, 1)
	go func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond) // work that it still has to do
		c <- 7
	}()
	v, came := pause.Await(c, time.Second)
	if came && v != 7 {
		t.Errorf("%d; want what was sent", v)
	}
	if !came {
		<-c
	}
	if err := waker.Wait(); err != nil {
		t.Error(err)
	}
	return came
}
