package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/simulate"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm/sim"
)

// pretendRun is a run of simulate's whose copy of ddpbatch is another program: it ends at once, and asks to be started again.
func pretendRun(t *testing.T) (*rundir.Dir, *jobfile.Job) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexit 75\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := fakeslurm.RunOf(t, "simulate", program, "")
	job, err := jobfile.OfRun(run)
	if err != nil {
		t.Fatal(err)
	}
	return run, job
}

// play simulates the job under a release of Slurm; heard is told each thing that is said.
func play(ctx context.Context, t *testing.T, run *rundir.Dir, job *jobfile.Job, release sim.Release, heard func(string)) error {
	t.Helper()
	out := &hearer{heard: heard}
	e := &env{
		Out: out, Err: out, Dir: "/", Hostname: "h", Now: time.Now, Environ: os.Environ(),
		Terminal: func(io.Writer) (int, bool) { return 0, false },
	}
	p := simulate.DefaultPretend()
	p.Release = release
	err := simulateRun(ctx, e, run, job, p)
	t.Logf("%v\n%s", err, &out.all)
	return err
}

// hearer is an output that somebody listens to.
type hearer struct {
	heard func(string)
	mu    sync.Mutex
	all   bytes.Buffer
}

func (h *hearer) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard(string(p))
	return h.all.Write(p)
}

// TestSimulateEndedBetweenAttempts: a person who ends a job that has been requeued, and has not begun again, ends it for good.
func TestSimulateEndedBetweenAttempts(t *testing.T) {
	for name, test := range map[string]struct {
		said string // when the person does it
		sig  syscall.Signal
		word string
	}{
		"Ctrl-C while it waits":               {"requeued (", syscall.SIGINT, "interrupted"},
		"cancelled while it waits":            {"requeued (", syscall.SIGTERM, "cancelled"},
		"Ctrl-C when the requeue was decided": {"no agent left a verdict", syscall.SIGINT, "interrupted"},
	} {
		for _, release := range sim.Releases {
			t.Run(name+", "+string(release), func(t *testing.T) {
				run, job := pretendRun(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				err := play(ctx, t, run, job, release, func(text string) {
					if strings.Contains(text, test.said) {
						cancel(launch.SignalError{Sig: test.sig})
					}
				})
				if exitCode(err) != 128+int(test.sig) {
					t.Errorf("exit code %d, want %d", exitCode(err), 128+int(test.sig))
				}
				if got, want := eventsOf(t, run), []string{"begin", "end", "requeue", "refused", "give-up"}; !slices.Equal(got, want) {
					t.Errorf("ledger %q, want %q", got, want)
				}
				if v, err := run.Verdict(1); err != nil || v.Requeue || v.Cause != "cancelled" ||
					!strings.HasPrefix(v.Message, test.word+" before it began again") {
					t.Errorf("verdict %+v, %v", v, err)
				}
				row, err := statusOf(t.Context(), &env{Dir: "/", Environ: os.Environ(), Now: time.Now}, run)
				if err != nil || row.State != "CANCELLED" || !row.Ended || strings.Contains(row.Next, "starts again") {
					t.Errorf("status %+v, %v", row, err)
				}
			})
		}
	}
}

// TestSimulateThatCannotStart: an attempt whose agents cannot be started has ended, and its verdict says why.
func TestSimulateThatCannotStart(t *testing.T) {
	run, job := pretendRun(t)
	if err := os.Chmod(run.Binary(), 0o600); err != nil {
		t.Fatal(err)
	}
	err := play(t.Context(), t, run, job, sim.Slurm2205, func(string) {})
	if exitCode(err) != exitFailed || !errors.Is(err, syscall.EACCES) {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	if got, want := eventsOf(t, run), []string{"begin", "end"}; !slices.Equal(got, want) {
		t.Errorf("ledger %q, want %q", got, want)
	}
	v, verdictErr := run.Verdict(1)
	if verdictErr != nil || v.Cause != "start" || v.Exit != exitFailed || v.Message != err.Error() {
		t.Errorf("verdict %+v, %v; want the message %v", v, verdictErr, err)
	}
	row, statusErr := statusOf(t.Context(), &env{Dir: "/", Environ: os.Environ(), Now: time.Now}, run)
	if statusErr != nil || row.State != "FAILED" || !row.Ended || row.Message != err.Error() {
		t.Errorf("status %+v, %v", row, statusErr)
	}
}
