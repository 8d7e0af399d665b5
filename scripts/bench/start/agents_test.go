package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

var program string // ddpbatch

func TestMain(m *testing.M) {
	os.Exit(testkit.WithProgram(func(built string) int {
		program = built
		return m.Run()
	}))
}

// The parts about agents measure what there is, on a small cluster, and leave no worker.
func TestAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts jobs")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of which it takes a few seconds
	defer cancel()
	o := options{parts: knownParts, launches: 2, meet: shape{3, 2}, idle: time.Second}
	figures, err := measureFigures(ctx, program, dir, o, io.Discard)
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

// A job that cannot begin says why, and leaves nothing.
func TestJobThatEndsEarly(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "ddpbatch")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho worker 7 8; echo the reason >&2; exit 2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, _, err := cluster{program, dir}.start(t.Context(), shape{2, 2}, workerScript)
	if err == nil || err.Error() != "a job of 2x2 ended early: the reason" {
		t.Errorf("%v", err)
	}
	if jobs, _ := filepath.Glob(filepath.Join(dir, "job-*")); len(jobs) > 0 {
		t.Errorf("left: %q", jobs)
	}
}
