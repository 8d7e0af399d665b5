package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
)

// first has a command of Slurm's do a line of shell before what it does.
func (q *queue) first(name, line string) {
	q.t.Helper()
	path := filepath.Join(q.dir, name)
	q.must(os.Remove(path))
	q.must(os.WriteFile(path, []byte("#!/bin/sh\n"+line+"\n"+queueCommands), 0o700))
}

// claimsLine is a line of shell by which another command takes the claim of runs, and gives it back.
func (q *queue) claimsLine(runs string) string {
	q.t.Helper()
	q.says("claim.json", `{"machine":"another","pid":7,"start":1,"host":"login2","doing":"resume","since":"2026-11-24T10:00:00Z","nonce":"x","done":true}`)
	return fmt.Sprintf(`umask 077; for run in %s; do mkdir -p "$run/claims/9" && cp '%s/claim.json' "$run/claims/9/"; done`, runs, q.dir)
}

const byAnother = "another command has claimed the run: resume by process 7 on login2, begun 2026-11-24 10:00:00"

func (q *queue) jobFile(parent string) {
	q.t.Helper()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
}

// begin is what the batch script of a job does first.
func (q *queue) begin(parent, run, job string) error {
	q.t.Helper()
	e, _, _ := q.env(parent)
	e.Environ = append(e.Environ, "SLURM_JOB_ID="+job)
	return runAttemptBegin(q.t.Context(), e, run)
}

func (q *queue) ledger(run string) []rundir.Event {
	q.t.Helper()
	history, err := must(q.t, rundir.Open, run).Ledger()
	q.must(err)
	return history
}

// events are those of a name in a run's ledger.
func (q *queue) events(run, name string) (found []rundir.Event) {
	q.t.Helper()
	for _, e := range q.ledger(run) {
		if e.Event == name {
			found = append(found, e)
		}
	}
	return found
}

// In a folder that others write to, with the sticky bit, they can take the names of links to runs. That stops no job.
func TestTakenLinkName(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.jobFile(parent)
	q.must(os.Mkdir(filepath.Join(parent, "runs"), 0o755))
	for _, id := range []string{"500", "501"} {
		q.must(os.WriteFile(filepath.Join(parent, "runs", "x-"+id), nil, 0o600))
	}
	const says = "the run is found by its path, and not by its job id"
	code, out, errs := q.run(parent, "submit", "job.toml")
	if code != 0 || !strings.HasPrefix(out, "submitted job 500") || strings.Count(errs, says) != 1 {
		t.Fatalf("submit: %d, %s%s", code, out, errs)
	}
	run := must(t, rundir.List, filepath.Join(parent, "runs"))[0].Path()
	if err := q.begin(parent, run, "500"); err != nil {
		t.Errorf("the job does not begin: %v", err)
	}
	q.rights(parent, run)
	if err := q.begin(parent, run, "501"); err != nil {
		t.Errorf("the resumed job does not begin: %v", err)
	}
}
