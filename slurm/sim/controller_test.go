package sim

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/slurm"
)

// receiver records which signals one side of a job gets, and when.
type receiver struct {
	name     string
	begin    time.Time
	received *[]string
}

func (e receiver) Signal(sig syscall.Signal) {
	*e.received = append(*e.received, fmt.Sprintf("%v %s %s", time.Since(e.begin), e.name, strings.TrimPrefix(unix.SignalName(sig), "SIG")))
}

// TestControllerSignalsInSlurmsOrder checks the order of signals that Slurm 22.05 was observed to send at a time limit, a cancel and a
// preemption. KillWait and GraceTime were 5 s there.
func TestControllerSignalsInSlurmsOrder(t *testing.T) {
	for event, want := range map[Event]string{
		Cancelled: "0s tasks CONT, 0s tasks TERM, 0s batch CONT, 0s batch TERM, 5s batch KILL, 5s tasks KILL",
		TimeLimit: "0s tasks TERM, 0s tasks CONT, 0s tasks TERM, 0s batch CONT, 0s batch TERM, 5s batch KILL, 5s tasks KILL",
		Preempted: "0s tasks CONT, 0s tasks TERM, 6s tasks TERM, 6s tasks CONT, 6s tasks TERM, 6s batch CONT, 6s batch TERM, 11s " +
			"batch KILL, 11s tasks KILL",
		Warned: "0s batch CONT, 0s batch USR2",
	} {
		synctest.Test(t, func(t *testing.T) {
			var received []string
			c := Controller{
				Tasks: receiver{"tasks", time.Now(), &received}, Batch: receiver{"batch", time.Now(), &received},
				KillWait: 5 * time.Second, GraceTime: 6 * time.Second,
			}
			c.Play(t.Context(), event)
			if got := strings.Join(received, ", "); got != want {
				t.Errorf("%s:\n%s, want\n%s", event, got, want)
			}
		})
	}
}

// A signal of --signal goes only to the batch script with B:, and only to the tasks without it. No other signal follows. Slurm 22.05 was
// observed to do that.
func TestControllerWarns(t *testing.T) {
	for text, want := range map[string]string{
		"B:USR1@60": "0s batch CONT, 0s batch USR1", "USR1@60": "0s tasks CONT, 0s tasks USR1", "TERM@20": "0s tasks CONT, 0s tasks TERM",
	} {
		w, err := slurm.ParseWarning(text)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			var received []string
			Controller{
				Tasks: receiver{"tasks", time.Now(), &received}, Batch: receiver{"batch", time.Now(), &received},
				KillWait: 5 * time.Second, Warning: w,
			}.Play(t.Context(), Warned)
			if got := strings.Join(received, ", "); got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		})
	}
}

func TestControllerStopsAtTheJobsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var received []string
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e := receiver{"any", time.Now(), &received}
		Controller{Tasks: e, Batch: e, KillWait: 5 * time.Second}.Play(ctx, Cancelled)
		if len(received) != 4 || time.Since(e.begin) != time.Second {
			t.Errorf("after %v: %q", time.Since(e.begin), received)
		}
	})
}
