package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/attempt"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
)

// runBefore is a run as the program of commit 7836672 made it: testdata/run-7836672 is what its submit, its attempt begin and its attempt
// end left, with @DIR@ for the folder that it was in. lines are how many of its ledger's there are: submit, begin, end, give-up.
func runBefore(q *queue, lines int) (parent, run string) {
	q.t.Helper()
	parent = q.t.TempDir()
	run = filepath.Join(parent, "runs", "x-20261124-101820-4e32")
	for _, dir := range []string{"attempts", "checkpoints", "bin"} {
		q.must(os.MkdirAll(filepath.Join(run, dir), 0o700))
	}
	was := os.DirFS(filepath.Join("testdata", "run-7836672"))
	q.must(fs.WalkDir(was, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || lines < 2 && strings.HasPrefix(path, "attempts/") || lines == 0 && path == "jobid" {
			return err
		}
		to := filepath.Join(run, path)
		if entry.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		if lines < 3 && entry.Name() == "verdict.json" {
			return nil
		}
		text, err := fs.ReadFile(was, path)
		if path == "ledger.jsonl" {
			text = []byte(strings.Join(strings.SplitAfter(string(text), "\n")[:lines], ""))
		}
		if len(text) == 0 {
			return err
		}
		return os.WriteFile(to, []byte(strings.ReplaceAll(string(text), "@DIR@", parent)), 0o600)
	}))
	q.must(os.WriteFile(filepath.Join(run, "bin", "ddpbatch"), []byte("#!/bin/sh\n"), 0o700))
	if lines > 0 {
		q.must(os.Symlink(filepath.Base(run), filepath.Join(parent, "runs", "x-17")))
	}
	return parent, run
}

// job17 is that run's, in Slurm.
func (q *queue) job17(run, state string) {
	q.t.Helper()
	q.says("jobs/17", state+" "+filepath.Join(run, "script.sh"))
}

func TestRunOfTheProgramBeforeGoesOn(t *testing.T) {
	t.Run("waits", func(t *testing.T) {
		q := newQueue(t)
		parent, run := runBefore(q, 1)
		q.job17(run, "PENDING")
		q.rights(parent, run)
	})
	t.Run("runs", func(t *testing.T) {
		q := newQueue(t)
		parent, run := runBefore(q, 2)
		q.job17(run, "RUNNING")
		if row := q.status(parent, run); row.Job != "17" || row.State != "RUNNING" || row.Attempt != 1 || row.Ended {
			t.Errorf("status: %+v", row)
		}
		if code, _, errs := q.run(parent, "resume", "17"); code != exit.Usage || !strings.Contains(errs, "job 17 is still RUNNING") {
			t.Errorf("resume: %d, %s", code, errs)
		}
		if code, out, errs := q.run(parent, "cancel", "17"); code != 0 || !strings.HasPrefix(out, "cancelled job 17\n") {
			t.Errorf("cancel: %d, %s%s", code, out, errs)
		}
	})
	t.Run("is requeued", func(t *testing.T) {
		q, p := newQueue(t), newPretendSlurm(t)
		_, run := runBefore(q, 2)
		p.says("scontrol.out", strings.ReplaceAll(fmt.Sprintf(factsLine, "RUNNING Reason=None PreemptTime=2026-11-21T00:55:18", 0, "(null)"), "=12 ", "=17 "))
		e, _, errs := p.env(0, 1)
		e.Environ = append(e.Environ, "SLURM_JOB_ID=17")
		d := must(t, rundir.Open, run)
		q.must(d.WriteVerdict(rundir.Verdict{Attempt: 1, JobID: "17", Cause: "cancelled", Exit: 143, Message: "told", Time: time.Now()}))
		if err := runAttemptEnd(t.Context(), e, run, attempt.SrunEnd{Code: 143}); exitCode(err) != exit.Requeue || len(p.calls()) != 1 || p.calls()[0] != "scontrol requeue 17" {
			t.Errorf("end: %v, %s; ran %q", err, errs, p.calls())
		}
		e, out, _ := p.env(1, 0)
		e.Environ = append(e.Environ, "SLURM_JOB_ID=17")
		if err := runAttemptBegin(t.Context(), e, run); err != nil || !strings.Contains(out.String(), "DDPBATCH_ATTEMPT=2\n") {
			t.Errorf("begin: %v, %s", err, out)
		}
		if s, err := d.Submissions(); err != nil || strings.Join(s.Jobs, " ") != "17" || s.Open != nil {
			t.Errorf("submissions %+v, %v", s, err)
		}
	})
	t.Run("has ended", func(t *testing.T) {
		q := newQueue(t)
		parent, run := runBefore(q, 4)
		q.job17(run, "FAILED")
		if row := q.status(parent, run); row.Job != "17" || row.State != "FAILED" || row.Cause != "unknown" || row.Exit == nil || *row.Exit != 7 {
			t.Errorf("status: %+v", row)
		}
		if code, out, errs := q.run(parent, "resume", "17"); code != 0 || len(q.alive()) != 1 || !strings.HasPrefix(out, "submitted job 500: ") {
			t.Errorf("resume: %d, %s%s", code, out, errs)
		}
		q.forgets("17")
		if row := q.status(parent, filepath.Join(parent, "runs", ".job-x-500")); row.Job != "500" || row.State != "PENDING" {
			t.Errorf("status: %+v", row)
		}
	})
	t.Run("was never recorded", func(t *testing.T) { // its submit was killed
		q := newQueue(t)
		parent, run := runBefore(q, 0)
		q.job17(run, "PENDING")
		q.rights(parent, run)
	})
	t.Run("has no job", func(t *testing.T) { // as was its submit before it had one
		q := newQueue(t)
		parent, run := runBefore(q, 0)
		q.rights(parent, run)
	})
}
