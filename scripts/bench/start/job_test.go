package main

import (
	"os"
	"path/filepath"
	"testing"

	"ddpbatch/internal/testkit"
)

func TestMain(m *testing.M) {
	os.Exit(testkit.WithProgram(func(built string) int {
		program = built
		return m.Run()
	}))
}

var program string // ddpbatch

// A job that cannot begin reports the reason, and leaves nothing behind.
func TestJobThatEndsEarlySaysWhy(t *testing.T) {
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

func TestParseWorker(t *testing.T) {
	if w, ok := parseWorker("worker 77 12"); !ok || w.pid != 77 || w.agent != 12 {
		t.Errorf("%+v, %v", w, ok)
	}
	for _, line := range []string{"", "worker", "worker 7", "worker x 7", "worker 7 1", "worker -7 12", "a worker 7 12"} {
		if w, ok := parseWorker(line); ok {
			t.Errorf("%q is taken for a worker: %+v", line, w)
		}
	}
}
