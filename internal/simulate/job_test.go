package simulate

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/slurm/sim"
)

// testEnv returns the environment of a process on a screen with that many columns; 0: a pipe.
func testEnv(screen io.Writer, columns int) Env {
	lookup := func(string) (string, bool) { return "", false }
	return Env{
		Env: attempt.Env{Env: submission.Env{Now: time.Now, Log: slog.New(slog.DiscardHandler)}, Lookup: lookup, Err: screen},
		Out: screen, Environ: os.Environ(), Terminal: func(io.Writer) (int, bool) { return columns, columns > 0 },
	}
}

// pretendRun returns a run of simulate whose copy of ddpbatch is another program, which ends at once and asks to be started again.
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

// TestJobWithoutANodeLeftDoesNotBeginAgain: if a requeued job finds no node to begin on, no message says that it begins again.
func TestJobWithoutANodeLeftDoesNotBeginAgain(t *testing.T) {
	run, job := pretendRun(t)
	if err := run.SetJobID("999999999"); err != nil {
		t.Fatal(err)
	}
	e := testEnv(io.Discard, 0)
	p := DefaultPretend()
	a, err := p.Allocation(job, 999999999)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), e, run, job, p, a)
	if err != nil {
		t.Fatal(err)
	}
	s.used, s.lost = sim.MaxNodes, []string{a.Nodes[0].Name}
	_, err = s.Run(t.Context())
	if closeErr := s.Close(); err == nil || closeErr != nil {
		t.Errorf("ended with %v, %v", err, closeErr)
	}
	if got, want := fakeslurm.Events(t, run), []string{"begin", "end", "requeue", "refused", "give-up"}; !slices.Equal(got, want) {
		t.Errorf("ledger %q, want %q", got, want)
	}
	if v, err := run.Verdict(1); err != nil || v.Requeue || v.Exit != 75 {
		t.Errorf("verdict %+v, %v", v, err)
	}
}
