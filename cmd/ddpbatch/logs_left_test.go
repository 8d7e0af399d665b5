package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/mpi/launch"
)

// Ctrl-C ends logs -f, and not the job. logs -f reports that, and the commands that it names work.
func TestInterruptEndsLogsAndNotTheJob(t *testing.T) {
	dir := t.TempDir()
	job, said := command(dir, "simulate", "--nodes", "1", "--nproc-per-node", "1", "--", "sh", "-c",
		`echo ready; until [ -e go ]; do sleep 0.05; done; echo done`)
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(5*time.Minute, func() { job.Process.Kill() }).Stop() // longer than all waits below
	id := ""
	eventually(t, time.Minute, "the run has a job id", func() bool {
		if run := runMade(t, dir); run != nil {
			id, _ = run.JobID()
		}
		return id != ""
	})
	for name, words := range map[string][]string{"log": {"logs", "-f", id}, "rank": {"logs", "-f", id, "--rank", "0"}} {
		var out, errs lockedBuffer
		watch, _ := command(dir, words...)
		watch.Stdout, watch.Stderr = &out, &errs
		if err := watch.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, name+": the first line is shown", func() bool { return strings.Contains(out.String(), "ready\n") })
		watch.Process.Signal(syscall.SIGINT)
		watch.Wait()
		want := "ddpbatch: told to stop by SIGINT; job " + id + " keeps running\nwatch: ddpbatch logs -f " + id +
			"\ncancel: ddpbatch cancel " + id + "\n"
		if code := watch.ProcessState.ExitCode(); code != exit.Interrupted || !strings.HasSuffix(errs.String(), want) {
			t.Errorf("%s: exit code %d\n%s", name, code, errs.String())
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := job.Wait(); err != nil || !bytes.Contains(said.Bytes(), []byte("done\n")) {
		t.Errorf("the job was disturbed: %v\n%s", err, said)
	}
}

// TestInterruptEndsTheWaitAndNotTheJob checks the same for --wait and --follow of submit and resume, which share their code. From a folder
// other than that of the runs, the message names the job by its run directory.
func TestInterruptEndsTheWaitAndNotTheJob(t *testing.T) {
	for name, test := range map[string]struct {
		follow           bool
		state            string
		first, afterward string
	}{
		"--wait":                {false, "RUNNING", "", "keeps running"},
		"--follow":              {true, "RUNNING", "", "keeps running"},
		"--wait in the queue":   {false, "PENDING Priority", "job 12 waits (Priority)\n", "stays in the queue"},
		"--follow in the queue": {true, "PENDING", "job 12 waits\n", "stays in the queue"},
	} {
		follow := test.follow
		t.Run(name, func(t *testing.T) {
			p, run := newPretendSlurm(t), attemptRun(t, "")
			e, _, _ := p.env(0, 0)
			var errs lockedBuffer
			e.Err = &errs
			p.QueueOf(run, "12 "+test.state)
			if err := run.SetJobID("12"); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { done <- afterSubmit(ctx, e, run, "12", !follow, follow) }()
			eventually(t, time.Minute, "Slurm was asked", func() bool {
				return errs.String() == test.first &&
					slices.ContainsFunc(p.calls(), func(call string) bool { return strings.HasPrefix(call, "squeue") })
			})
			stop(launch.SignalError{Sig: syscall.SIGINT})
			err := <-done
			if errs.String() != test.first {
				t.Errorf("it says %q at first, want %q", errs.String(), test.first)
			}
			if want := "job 12 " + test.afterward + "\nwatch: ddpbatch logs -f " + run.Path() + "\ncancel: ddpbatch cancel " +
				run.Path(); exitCode(err) != exit.Interrupted || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("exit code %d: %v", exitCode(err), err)
			}
		})
	}
}
