package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDeadlineOf(t *testing.T) {
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "1769860800": noon, "2026-01-31T12:00:00Z": noon, "2026-01-31T13:00:00+01:00": noon,
	} {
		got, err := deadlineOf(&env{Environ: []string{"DDPBATCH_DEADLINE=" + text}})
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"noon", "0", "-1", "1.5", "2026-01-31", "99999999999999999999", "9223372036854775807", "1769860800000", "253402300800", "1969-01-31T12:00:00Z",
	} {
		if _, err := deadlineOf(&env{Environ: []string{"DDPBATCH_DEADLINE=" + text}}); exitCode(err) != exitUsage {
			t.Errorf("%q: %v, want a fault of usage", text, err)
		}
	}
}

// Slurm says when the allocation ends, if nobody else does. What it says of a job without a limit is no deadline.
func TestDeadlineOfSlurm(t *testing.T) {
	for _, test := range []struct {
		own, slurm string
		want       time.Time
	}{
		{"", "1769860800", time.Unix(1769860800, 0)},
		{"1769860000", "1769860800", time.Unix(1769860000, 0)},
		{"", "0", time.Time{}},
		{"", "Unknown", time.Time{}},
		{"", "18446744073709551614", time.Time{}},
	} {
		got, err := deadlineOf(&env{Environ: []string{"DDPBATCH_DEADLINE=" + test.own, "SLURM_JOB_END_TIME=" + test.slurm}})
		if err != nil || !got.Equal(test.want) {
			t.Errorf("%q and %q: %v, %v, want %v", test.own, test.slurm, got, err, test.want)
		}
	}
}

// A run whose time is over stops after a step, saved, with the code that asks for another attempt; and that ends it.
func TestTrainStopsBeforeTheDeadline(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "long.toml"), []byte(stoppableJob), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := command(dir, "train", "long.toml", "--set", "train.epochs=1")
	cmd.Env = append(os.Environ(), "DDPBATCH_DEADLINE=1")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitRequeue {
		t.Fatalf("%v, want exit code %d\n%s", err, exitRequeue, out)
	}
	run := runMade(t, dir)
	if s := finalState(t, run); s.Step != 1 {
		t.Errorf("the newest checkpoint is of step %d, want 1", s.Step)
	}
	if v, err := run.Verdict(1); err != nil || v.Cause != "stopped" || v.Exit != exitRequeue || !strings.Contains(v.Message, "deadline") {
		t.Errorf("verdict %+v, %v", v, err)
	}
	late, out := command(dir, "resume", run.Path())
	late.Env = append(os.Environ(), "DDPBATCH_DEADLINE=1")
	if err := late.Run(); late.ProcessState.ExitCode() != exitRequeue {
		t.Fatalf("resume: %v, want exit code %d\n%s", err, exitRequeue, out)
	}
	if s := finalState(t, run); s.Step != 2 {
		t.Errorf("the newest checkpoint is of step %d, want 2", s.Step)
	}
	again, out := command(dir, "resume", run.Path())
	if err := again.Run(); err != nil {
		t.Fatalf("resume: %v\n%s", err, out)
	}
	if s := finalState(t, run); s.Step != 125 {
		t.Errorf("the last step is %d, want 125", s.Step)
	}
}
