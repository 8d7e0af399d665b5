package builtin

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
)

// TestVerdictIsLeftThoughTheRunCannotBeOpened: a rank that has claimed an attempt records how it ended, even if it never began to train.
// Without a verdict, the run's newest attempt would count as one that may still run.
func TestVerdictIsLeftThoughTheRunCannotBeOpened(t *testing.T) {
	parent := t.TempDir()
	program := filepath.Join(parent, "program")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Create(rundir.CreateConfig{
		Parent: parent, Binary: program, Now: time.Now(),
		Spec: rundir.Spec{Name: "job", Kind: "train", Nodes: 1, WorkDir: parent, Job: json.RawMessage("{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	before := run.Spec()
	changed := rundir.Overridden{Sets: []string{"train.epochs=2"}, WorkDir: parent, Nodes: 1, Job: json.RawMessage("{}")}
	if err := run.WriteSpec(before.Override(changed)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(run.MetricsPath(), 0o700); err != nil { // so that the file of metrics cannot be opened
		t.Fatal(err)
	}
	r := &Rank{
		Job: &jobfile.Job{}, Run: run, Lookup: func(string) (string, bool) { return "", false }, Hostname: "here", Now: time.Now,
		Out: io.Discard, Log: slog.New(slog.DiscardHandler), ExitCode: func(error) int { return exit.Failed },
	}
	failed := r.Work(t.Context())
	if failed == nil {
		t.Fatal("training went on without its metrics")
	}
	if v, err := run.Verdict(1); err != nil || v.Cause != "crash" || v.FirstRank != 0 || v.Message != failed.Error() {
		t.Errorf("%v; verdict %+v, %v", failed, v, err)
	}
	if again, err := rundir.Open(run.Path()); err != nil || again.Spec().Before != nil {
		t.Errorf("the changed job is still on trial: %v", err)
	}
}
