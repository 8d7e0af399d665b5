package main

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/report"
)

// The parts about agents measure what there is, on a small cluster, and leave no worker.
func TestAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts jobs")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of which it takes a few seconds
	defer cancel()
	o := options{parts: knownParts, Common: command.Common{Launches: 2}, meet: shape{3, 2}, idle: time.Second}
	figures, err := report.MeasureFigures(ctx, cluster{program, dir}.experiments(o), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != 9 {
		t.Errorf("%d figures", len(figures))
	}
	for _, f := range figures {
		if f.Unit != "%" && f.Samples.Median() <= 0 || f.Samples.Median() > 120_000 {
			t.Errorf("%s: %v %s", f.What, f.Samples, f.Unit)
		}
	}
	if jobs, err := filepath.Glob(filepath.Join(dir, "job-*")); len(jobs) > 0 || err != nil {
		t.Errorf("left: %q, %v", jobs, err)
	}
}
