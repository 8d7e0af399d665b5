package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// An error of Slurm that comes after it may have accepted the job is not a refusal: the run remains, and commands find its job.
func TestSubmitKeepsAJobThatSlurmMayHave(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	q.says("mode", "lost")
	code, out, errs := q.run(parent, "submit", "job.toml")
	runs := must(t, rundir.List, filepath.Join(parent, "runs"))
	if code != exit.Refused || out != "" || len(runs) != 1 || !strings.Contains(errs, "ddpbatch status "+runs[0].Path()) {
		t.Fatalf("%d, %s%s; runs %v", code, out, errs, runs)
	}
	q.rights(parent, runs[0].Path())

	// a job that Slurm refuses leaves nothing behind
	q.says("mode", "refuse")
	if code, _, errs := q.run(parent, "submit", "job.toml"); code != exit.Refused ||
		len(must(t, rundir.List, filepath.Join(parent, "runs"))) != 1 {
		t.Errorf("refused: %d, %s", code, errs)
	}
}

// submit and resume report a job that will not start: Slurm accepts jobs that it never starts.
func TestSubmitSaysWhatDoesNotStart(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	q.must(os.WriteFile(filepath.Join(parent, "other.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	q.says("reason", "PartitionConfig") // Slurm 25.11 gives this reason for a job of 99 nodes on a cluster of four
	for id, args := range map[string][]string{"500": {"submit", "other.toml", "--parsable"}, "501": {"resume", run}} {
		q.says("next", id)
		code, out, errs := q.run(parent, args...)
		if code != 0 || !strings.Contains(out, id) ||
			!strings.HasPrefix(errs, "ddpbatch: job "+id+" will not start in its present form: Slurm's reason is PartitionConfig; ") {
			t.Errorf("%s: %d, %q, %q", args, code, out, errs)
		}
	}
	q.must(os.WriteFile(filepath.Join(parent, "held.toml"), []byte("name = \"x\"\nslurm.hold = true\n[launch]\ncommand = [\"true\"]\n"),
		0o600))
	q.says("reason", "JobHeldUser")
	q.says("next", "502")
	code, _, errs := q.run(parent, "submit", "held.toml")
	if code != 0 || errs != "ddpbatch: job 502 is held, as slurm.hold says; to release it: scontrol release 502\n" {
		t.Errorf("one that is to be held: %d, %q", code, errs)
	}
	q.says("next", "503")
	code, _, errs = q.run(parent, "submit", "other.toml", "--", "--hold")
	if code != 0 || errs != "ddpbatch: job 503 is held: Slurm's reason is JobHeldUser; to release it: scontrol release 503\n" {
		t.Errorf("one that is held by words after --: %d, %q", code, errs)
	}
	q.says("next", "510")
	code, _, errs = q.run(parent, "submit", "other.toml", "--set", "slurm.chain=2", "--", "--hold")
	if code != 0 || !strings.HasSuffix(errs, "to release it: scontrol release 510,511\n") {
		t.Errorf("a chain that is held: %d, %q", code, errs)
	}
	q.says("reason", "Priority")
	if code, _, errs := q.run(parent, "submit", "other.toml"); code != 0 || errs != "" {
		t.Errorf("one that waits for its turn: %d, %q", code, errs)
	}
}

// If a job exceeds the limits of its partition, submit prints what check --slurm prints, whether Slurm refuses the job or never starts it.
func TestSubmitSaysWhichLimitIsExceeded(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[slurm]\nnodes = 9\n[launch]\ncommand = [\"true\"]\n"),
		0o600))
	q.must(os.WriteFile(filepath.Join(q.dir, "scontrol"), []byte("#!/bin/sh\ncase $* in *partition*) "+
		"echo PartitionName=main Default=YES MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 State=UP TotalNodes=4 ;; *) exit 1 ;; esac\n"),
		0o700))
	q.must(os.WriteFile(filepath.Join(q.dir, "sinfo"), []byte("#!/bin/sh\nexit 0\n"), 0o700))
	const fact = "; slurm.nodes: the job asks for 9 nodes, but partition main has 4"
	q.says("mode", "refuse")
	code, _, errs := q.run(parent, "submit", "job.toml")
	if code != exit.Refused || !strings.HasSuffix(errs, fact+"\n") || strings.Count(errs, "\n") != 1 {
		t.Errorf("refused: %d, %q", code, errs)
	}
	q.says("mode", "")
	q.says("reason", "PartitionConfig")
	for _, args := range [][]string{{"submit", "job.toml"}, {"submit", "job.toml", "--parsable"}} {
		code, _, errs := q.run(parent, args...)
		if code != 0 || !strings.Contains(errs, "Slurm's reason is PartitionConfig"+fact+"; see JOB") {
			t.Errorf("%q: %d, %q", args, code, errs)
		}
	}
}

// claimsLine returns a line of shell with which another command takes the claim of runs and gives it back.
func (q *queue) claimsLine(runs string) string {
	q.t.Helper()
	q.says("claim.json", strings.TrimSuffix(fakeslurm.OtherClaim, "}")+`,"done":true}`)
	return fmt.Sprintf(`umask 077; for run in %s; do mkdir -p "$run/claims/9" && cp '%s/claim.json' "$run/claims/9/"; done`, runs, q.dir)
}

const byAnother = "another command has claimed the run: " + fakeslurm.OtherClaimWords

// A submit that loses the claim while it prepares the run submits nothing, and leaves the run as it is, since another command may be
// submitting it.
func TestLostClaimSubmitsNothing(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.jobFile(parent)
	e, out, errs := q.env(parent)
	claimed, line := filepath.Join(parent, "runs", "*", "claims", "1"), q.claimsLine(filepath.Join(parent, "runs", "x-*"))
	e.Now = func() time.Time {
		if found, _ := filepath.Glob(claimed); len(found) > 0 {
			q.must(exec.Command("/bin/sh", "-c", line).Run())
		}
		return time.Now()
	}
	if code := Main(t.Context(), e, []string{"ddpbatch", "submit", "job.toml"}); code != exit.Usage ||
		!strings.Contains(errs.String(), byAnother) {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	runs := must(t, rundir.List, filepath.Join(parent, "runs"))
	if len(runs) != 1 || len(q.events(runs[0].Path(), rundir.EventSubmitting)) > 0 || len(q.jobs()) > 0 {
		t.Errorf("runs %v, jobs %q", runs, q.jobs())
	}
}

// If submit cannot claim its run, for example because the disk is full, it does not leave the run behind. If another command has found the
// run, submit leaves it.
func TestSubmitThatCannotClaimLeavesNoRun(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.jobFile(parent)
	e, out, errs := q.env(parent)
	e.Now = func() time.Time {
		if found, _ := filepath.Glob(filepath.Join(parent, "runs", "*", "spec.json")); len(found) > 0 {
			q.must(os.WriteFile(filepath.Join(filepath.Dir(found[0]), "claims"), nil, 0o600))
		}
		return time.Now()
	}
	if code := Main(t.Context(), e, []string{"ddpbatch", "submit", "job.toml"}); code != exit.Failed ||
		!strings.Contains(errs.String(), "not a directory") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	if runs := must(t, rundir.List, filepath.Join(parent, "runs")); len(runs) > 0 {
		t.Errorf("left behind: %v", runs)
	}
}

// A script requests cores only if the words that sbatch gets beside it do not: Slurm 25.11 refuses both together.
func TestCoresAreAskedForOnce(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	text := "name = \"x\"\n[launch]\nnproc_per_node = 4\ncommand = [\"true\"]\n"
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte(text), 0o600))
	var run string
	asks := func(want bool, args ...string) {
		t.Helper()
		code, out, errs := q.run(parent, args...)
		if code != 0 {
			t.Fatalf("%q: %d, %s%s", args, code, out, errs)
		}
		if run == "" && !strings.HasPrefix(out, "#!") { // submitted for the first time
			run = must(t, rundir.List, filepath.Join(parent, "runs"))[0].Path()
		}
		if run != "" {
			out = string(must(t, os.ReadFile, filepath.Join(run, "script.sh")))
			q.is(q.alive()[0], "CANCELLED")
		}
		if got := strings.Contains(out, "#SBATCH --cpus-per-task=4\n"); got != want {
			t.Errorf("%q: the script asks for cores: %v", args, got)
		}
	}
	asks(true, "submit", "job.toml", "--dry-run", "--", "--switches=1")
	asks(false, "submit", "job.toml", "--dry-run", "--", "--cpus-per-gpu=8")
	asks(false, "submit", "job.toml", "--", "--cpus-per-gpu=8")
	asks(true, "resume", run)
	asks(false, "resume", run, "--", "--tres-per-task=cpu:8")
}
