package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// trapped is a worker with a handler for the warning. (Go's runtime has one from the start, and drops what comes before
// signal.Notify.)
var trapped = []string{"/bin/sh", "-c", "trap 'echo user defined signal 2; exit 75' USR2; while :; do sleep 0.05; done"}

// A warning reaches every worker once, whatever causes it.
func TestWarningReachesEveryWorkerOnce(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, w *world){
		"by an agent's channel": func(t *testing.T, w *world) {
			warn := make(chan struct{}, 1)
			w.agents[1].Warn = warn
			go func() {
				w.awaitMarks("0", "1", "2")
				warn <- struct{}{}
			}()
		},
		"by the stop file": func(t *testing.T, w *world) {
			go func() {
				w.awaitMarks("0", "1", "2")
				if err := touch(w.dir.StopPath(1)); err != nil {
					t.Error(err)
				}
			}()
		},
		"by the deadline": func(t *testing.T, w *world) {
			for i := range w.agents {
				w.agents[i].Command = trapped
				w.agents[i].Deadline, w.agents[i].Policy.Lead = time.Now().Add(time.Hour), time.Hour
			}
		},
		"by a deadline that agent 0 finds": func(t *testing.T, w *world) {
			w.agents[0].FindDeadline = func(context.Context) (time.Time, error) { return time.Now().Add(time.Hour), nil }
			w.agents[0].Policy.Lead = time.Hour
			w.agents[0].Command, w.agents[1].Command = trapped, trapped
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{1, 2}, "wait", "75")
			w.elastic(0, 3)
			begin(t, w)
			v := w.agree(w.run())
			if v.Cause != "stopped" || v.Exit != 75 || !v.Requeue || !v.Saved || v.Round != 0 {
				t.Errorf("verdict is %+v", v)
			}
			w.measured(v)
			for rank, host := range []string{"n1", "n2", "n2"} {
				if got := w.logOf(host, rank, "out"); got != "user defined signal 2\n" {
					t.Errorf("rank %d saw %q, want the signal, once", rank, got)
				}
			}
			if _, err := os.Stat(w.dir.StopPath(1)); err != nil {
				t.Errorf("no stop file: %v", err)
			}
		})
	}
}

// measured checks that the ledger says how long before the job's end the workers were to be warned, and how long they took from the
// warning until they had ended.
func (w *world) measured(v rundir.Verdict) {
	w.t.Helper()
	history, err := w.dir.Ledger()
	must(w.t, err)
	end := history[len(history)-1]
	if end.Event != rundir.EventEnd || end.WarnedS != v.WarnedS || end.Signal != v.Signal || end.LeadS != v.LeadS ||
		v.LeadS != w.agents[0].Policy.Lead.Seconds() || v.WarnedS <= 0 || v.WarnedS > bound.Seconds() {
		w.t.Errorf("the ledger says %+v, the verdict is %+v", end, v)
	}
}

// A program without a handler would die of the signal, so it does not get it. Only the stop file warns such a program.
func TestWarningSparesWorkersWithoutAHandler(t *testing.T) {
	for code, cause := range map[int]string{75: "stopped", 0: "done"} {
		w := newWorld(t, []int{2}, "")
		script := fmt.Sprintf(
			`echo > "$%s/$RANK"; while [ ! -e "$DDPBATCH_STOP_FILE" ]; do sleep 0.02; done; sleep 0.1; echo saved; exit %d`, workerFolder,
			code)
		w.agents[0].Command = []string{"/bin/sh", "-c", script}
		warn := make(chan struct{}, 1)
		w.agents[0].Warn = warn
		go func() {
			w.awaitMarks("0", "1")
			warn <- struct{}{}
		}()
		if v := w.agree(w.run()); v.Cause != cause || v.Exit != code {
			t.Errorf("verdict is %+v", v)
		}
		for rank := range 2 {
			if got := w.logOf("n1", rank, "out"); got != "saved\n" {
				t.Errorf("rank %d said %q", rank, got)
			}
		}
	}
}

// A worker that installs its handler after the warning still gets the signal.
func TestWarningWaitsForTheHandler(t *testing.T) {
	w := newWorld(t, []int{1}, "")
	script := fmt.Sprintf(`while [ ! -e "$DDPBATCH_STOP_FILE" ]; do sleep 0.02; done; trap 'echo warned; exit 75' USR2; echo > `+
		`"$%s/ready"; while :; do sleep 0.05; done`, workerFolder)
	w.agents[0].Command = []string{"/bin/sh", "-c", script}
	must(t, touch(w.dir.StopPath(1)))
	if v := w.agree(w.run()); v.Cause != "stopped" || v.Exit != 75 {
		t.Errorf("verdict is %+v", v)
	}
	if got := w.logOf("n1", 0, "out"); got != "warned\n" {
		t.Errorf("the worker said %q", got)
	}
}

// A worker that is ending when the signal comes may have removed its handler already, as Python does when it finalizes. If the
// warning kills it, that does not count as a failure.
func TestEndingWorkerKilledByAWarningIsNotAFailure(t *testing.T) {
	const ending = `trap 'trap - USR2; kill -USR2 $$' USR2; echo > "$DIR/$RANK"; while :; do sleep 0.05; done`
	behind := "sh -c '" + strings.ReplaceAll(ending, "'", `'\''`) + "'; exit"
	for name, script := range map[string]string{"the worker": ending, "a program behind a shell": behind} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{2}, "")
			warn := make(chan struct{}, 1)
			w.agents[0].Warn = warn
			w.agents[0].Command = []string{"/bin/sh", "-c", fmt.Sprintf(`export DIR="$%s"
				[ "$RANK" != 0 ] || { trap 'exit 75' USR2; echo > "$DIR/$RANK"; while :; do sleep 0.05; done; }
				%s`, workerFolder, script)}
			go func() {
				w.awaitMarks("0", "1")
				warn <- struct{}{}
			}()
			if v := w.agree(w.run()); v.Cause != "stopped" || v.Exit != 75 || !v.Requeue || !v.Saved {
				t.Errorf("verdict is %+v", v)
			}
		})
	}
}

// A failure after a warning does not cause a restart, because the job is about to end.
func TestFailureAfterAWarningIsNotRestarted(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "")
	w.elastic(0, 3)
	w.agents[0].Warn = closed()
	for i := range w.agents {
		w.agents[i].Command = []string{"/bin/sh", "-c", "trap 'exit 3' USR2; while :; do sleep 0.05; done"}
	}
	if v := w.agree(w.run()); v.Cause != "crash" || v.Exit != 3 || v.Round != 0 {
		t.Errorf("verdict is %+v", v)
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// The job's stop file counts in every round. Each round also has a stop file of its own.
func TestStopFileCountsInEveryRound(t *testing.T) {
	w := newWorld(t, []int{1}, "")
	script := `[ "$DDPBATCH_ROUND" = 0 ] && exit 1; echo "$DDPBATCH_STOP_FILE"; echo > "` + w.dir.StopPath(1) +
		`"; while [ ! -e "$DDPBATCH_STOP_FILE" ]; do sleep 0.02; done; exit 75`
	w.agents[0].Command = []string{"/bin/sh", "-c", script}
	w.elastic(0, 1)
	if v := w.agree(w.run()); v.Cause != "stopped" || v.Round != 1 || v.Attempt != 2 {
		t.Errorf("verdict is %+v", v)
	}
	if got := w.logAt(2, "n1", 0, "out"); got != w.dir.StopPath(2)+"\n" {
		t.Errorf("the worker got %q as the stop file", got)
	}
}

// ddpbatch's own trainer checks the deadline itself. It gets the deadline that agent 0 found.
func TestFoundDeadlineIsPublished(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "environ")
	at := time.Unix(time.Now().Unix()+60, 0)
	w.agents[0].FindDeadline = func(context.Context) (time.Time, error) { return at, nil }
	for i := range w.agents {
		w.agents[i].Builtin, w.agents[i].Policy.Lead = true, time.Hour
	}
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	for rank, host := range []string{"n1", "n2"} {
		if got := w.environOf(host, rank)["DDPBATCH_DEADLINE"]; got != fmt.Sprint(at.Unix()) {
			t.Errorf("rank %d was told %q, want %d", rank, got, at.Unix())
		}
	}
	if log := w.log.String(); strings.Contains(log, "asked to save") {
		t.Errorf("the trainer was warned: %s", log)
	}
}

func TestDeadlineThatIsNotFound(t *testing.T) {
	w := newWorld(t, []int{1}, "say", "x")
	w.agents[0].FindDeadline = func(context.Context) (time.Time, error) { return time.Time{}, errors.New("no squeue here") }
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
	if !strings.Contains(w.log.String(), "no squeue here") {
		t.Error("nothing was said of it")
	}
}

// TERM after a warning still ends workers that did not save.
func TestSignalAfterAWarningEndsWorkers(t *testing.T) {
	w := newWorld(t, []int{1}, "")
	script := fmt.Sprintf(`echo > "$%s/0"; while [ ! -e "$DDPBATCH_STOP_FILE" ]; do sleep 0.02; done; echo > "$%s/heard"; while :; do `+
		`sleep 0.05; done`, workerFolder, workerFolder)
	w.agents[0].Command = []string{"/bin/sh", "-c", script}
	w.agents[0].Warn = closed()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		w.awaitMarks("heard")
		cancel(SignalError{Sig: syscall.SIGTERM})
	}()
	v := w.agree(w.runUntil(ctx))
	if v.Cause != "cancelled" || v.Exit != 143 || v.Saved {
		t.Errorf("verdict is %+v", v)
	}
	w.measured(v)
}
