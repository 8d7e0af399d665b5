package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// A run whose deadline has passed saves and stops after one step, with the exit code that asks for another attempt. A resume without a
// deadline finishes it.
func TestTrainStopsBeforeTheDeadline(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "long.toml"), []byte(stoppableJob), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := command(dir, "train", "long.toml", "--set", "train.epochs=1")
	cmd.Env = append(os.Environ(), "DDPBATCH_DEADLINE=1")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exit.Requeue {
		t.Fatalf("%v, want exit code %d\n%s", err, exit.Requeue, out)
	}
	run := runMade(t, dir)
	if s := finalState(t, run); s.Step != 1 {
		t.Errorf("the newest checkpoint is of step %d, want 1", s.Step)
	}
	if v, err := run.Verdict(1); err != nil || v.Cause != "stopped" || v.Exit != exit.Requeue || !strings.Contains(v.Message, "deadline") {
		t.Errorf("verdict %+v, %v", v, err)
	}
	late, out := command(dir, "resume", run.Path())
	late.Env = append(os.Environ(), "DDPBATCH_DEADLINE=1")
	if err := late.Run(); late.ProcessState.ExitCode() != exit.Requeue {
		t.Fatalf("resume: %v, want exit code %d\n%s", err, exit.Requeue, out)
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

// If a rank would train alone, resume refuses before it stores the requested settings in the run.
func TestTrainThatWouldTrainAloneIsRefused(t *testing.T) {
	q, d := newQueue(t), fakeslurm.RunOf(t, "train", program, "")
	q.must(os.WriteFile(d.JobFilePath(), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	e, _, errs := q.env(filepath.Dir(d.Path()))
	e.Environ = append(e.Environ, "SLURM_NTASKS=2")
	code := Main(t.Context(), e, []string{"ddpbatch", "resume", d.Path(), "--set", "slurm.nodes=2"})
	if code != exit.Usage || !strings.Contains(errs.String(), "this rank would train alone") {
		t.Errorf("%d, %s", code, errs)
	}
	if spec := must(t, rundir.Open, d.Path()).Spec(); spec.Nodes != 1 || len(spec.Sets) > 0 {
		t.Errorf("the run has %d nodes now, and %q", spec.Nodes, spec.Sets)
	}
}
