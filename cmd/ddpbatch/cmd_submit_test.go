package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/mpi/launch/recovery"
)

// Of several who resume a run at once, one submits it, and the others say why they do not.
func TestResumesAtOnce(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	type end struct {
		code      int
		out, errs string
	}
	ends := make(chan end)
	const all = 6
	for range all {
		go func() {
			cmd := q.command(parent, "resume", run)
			var out, errs strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &errs
			_ = cmd.Run() // its exit code tells
			ends <- end{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
		}()
	}
	done := 0
	for range all {
		switch one := <-ends; {
		case one.code == 0:
			done++
		case one.code != exit.Usage || !strings.Contains(one.errs, "another command is submitting this run: resume by process ") && !strings.Contains(one.errs, "is still PENDING"):
			t.Errorf("%+v", one)
		}
	}
	if alive := q.alive(); done != 1 || len(alive) != 1 {
		t.Errorf("%d have submitted; jobs %q", done, alive)
	}
}

// What Slurm says after it may have taken the job is no refusal: the run stays, and its job is found.
func TestSubmitThatWasReceived(t *testing.T) {
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

	// what Slurm refused leaves nothing
	q.says("mode", "refuse")
	if code, _, errs := q.run(parent, "submit", "job.toml"); code != exit.Refused || len(must(t, rundir.List, filepath.Join(parent, "runs"))) != 1 {
		t.Errorf("refused: %d, %s", code, errs)
	}
}

// Slurm takes jobs that it never starts.
func TestSubmitSaysWhatDoesNotStart(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	q.says("reason", "PartitionConfig") // Slurm 25.11's, of a job of 99 nodes where there are four
	for id, args := range map[string][]string{"500": {"submit", "job.toml", "--parsable"}, "501": {"resume", run}} {
		q.says("next", id)
		code, out, errs := q.run(parent, args...)
		if code != 0 || !strings.Contains(out, id) || !strings.HasPrefix(errs, "ddpbatch: job "+id+" does not start as it is: Slurm says PartitionConfig; ") {
			t.Errorf("%s: %d, %q, %q", args, code, out, errs)
		}
	}
	q.says("reason", "Priority")
	if code, _, errs := q.run(parent, "submit", "job.toml"); code != 0 || errs != "" {
		t.Errorf("one that waits for its turn: %d, %q", code, errs)
	}
}

// A run that has nothing left to do says so, and nothing is submitted.
func TestResumeOfFinished(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	d := must(t, rundir.Open, run)
	n, err := d.ClaimAttempt()
	q.must(err)
	q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: "400"}))
	q.must(d.WriteVerdict(rundir.Verdict{Attempt: n, JobID: "400", Cause: "done"}))
	q.is("400", "COMPLETED")
	if code, out, _ := q.run(parent, "resume", run, "--set", "slurm.nodes=1"); code != 0 || out != "x is finished, and --set slurm.nodes=1 gives it nothing to do\n" {
		t.Errorf("%d, %q", code, out)
	}
	if left := q.jobs(); !slices.Equal(left, []string{"400 COMPLETED"}) {
		t.Errorf("jobs %q", left)
	}
}

// A job that the newest checkpoint does not fit is refused before it waits in a queue.
func TestResumeThatDoesNotFit(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte(`name = "x"
[train]
epochs = 1
batch_size = 4096
loss = "mse"
model = { kind = "mlp", hidden = [8], activation = "tanh" }
data = { kind = "generated" }
optimizer = { kind = "sgd", lr = 0.01 }
`), 0o600))
	if out, err := q.command(parent, "train", "job.toml").CombinedOutput(); err != nil {
		t.Fatalf("train: %v, %s", err, out)
	}
	d := must(t, rundir.List, filepath.Join(parent, "runs"))[0]
	spec := d.Spec()
	spec.Kind = "slurm" // as if it had been submitted
	q.must(d.WriteSpec(spec))
	q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmit, Detail: "job 400"}))
	for set, says := range map[string]string{
		"train.model.hidden=[16]":   "model.hidden is [8] in the checkpoint and [16] here",
		"train.batch_size=64":       "batch_size is 4096 in the checkpoint and 64 here",
		"train.data.noise=0.5":      "data.noise is ",
		"train.optimizer.kind=adam": "optimizer.kind is sgd in the checkpoint and adam here",
	} {
		code, out, errs := q.run(parent, "resume", d.Path(), "--set", set, "--set", "train.epochs=2")
		if code != exit.Mismatch || out != "" || !strings.Contains(errs, "the checkpoint does not fit this job: ") || !strings.Contains(errs, says) {
			t.Errorf("%s: %d, %s%s", set, code, out, errs)
		}
	}
	if now := must(t, rundir.Open, d.Path()).Spec(); now.Before != nil || string(now.Job) != string(spec.Job) {
		t.Errorf("a refused resume has changed the job: %s", now.Job)
	}
	if jobs := q.jobs(); len(jobs) > 0 {
		t.Errorf("jobs %q", jobs)
	}
	for _, sets := range [][]string{{"train.epochs=2", "slurm.nodes=2", "train.optimizer.lr=0.1"}, {"train.batch_size=64", "checkpoint.resume=never"}} {
		args := []string{"resume", d.Path()}
		for _, set := range sets {
			args = append(args, "--set", set)
		}
		if code, out, errs := q.run(parent, args...); code != 0 {
			t.Errorf("%s: %d, %s%s", sets, code, out, errs)
		}
		for _, id := range q.alive() {
			q.is(id, "CANCELLED")
		}
	}
}

// claimsLine is a line of shell by which another command takes the claim of runs, and gives it back.
func (q *queue) claimsLine(runs string) string {
	q.t.Helper()
	q.says("claim.json", strings.TrimSuffix(fakeslurm.OtherClaim, "}")+`,"done":true}`)
	return fmt.Sprintf(`umask 077; for run in %s; do mkdir -p "$run/claims/9" && cp '%s/claim.json' "$run/claims/9/"; done`, runs, q.dir)
}

const byAnother = "another command has claimed the run: " + fakeslurm.OtherClaimWords

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

// Who has lost the claim while it prepared the run submits nothing, and leaves what is in the run as it is, since another command may be
// submitting that.
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

// A cancel between the moment when Slurm takes a job and that when it is recorded is not lost.
func TestCancelWhileSubmitted(t *testing.T) {
	for _, by := range []string{"the owner", "root"} {
		t.Run(by, func(t *testing.T) {
			q := newQueue(t)
			parent, run := q.resumable()
			d := must(t, rundir.Open, run)
			submitting := rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}
			q.must(d.Append(submitting))
			q.says("jobs/500", "PENDING "+d.ScriptPath())
			if by == "root" { // who records nothing in a run of somebody else
				e, _, _ := q.env(parent)
				q.must(d.Append(rundir.Event{Time: e.Now(), Event: rundir.EventCancel, Job: "500", Detail: "job 500"}))
			} else {
				e, _, _ := q.env(parent)
				cancelled := false
				e.Now = func() time.Time {
					if !cancelled {
						cancelled = true
						if code, out, errs := q.run(parent, "cancel", run); code != 0 {
							t.Errorf("cancel: %d, %s%s", code, out, errs)
						}
					}
					return time.Now()
				}
				q.must(e.submitEnv().Record(d, "500", submitting))
				if found := q.events(run, rundir.EventResume); !cancelled || len(found) != 1 {
					t.Errorf("recorded %d times: %+v", len(found), found)
				}
			}
			if err := q.begin(parent, run, "500"); exitCode(err) != exit.Never || !strings.Contains(err.Error(), "cancelled") {
				t.Errorf("the cancelled job begins: %v", err)
			}
			if history := q.ledger(run); !recovery.WasCancelled(append(history, rundir.Event{Event: rundir.EventBegin, Job: "500"})) {
				t.Errorf("the cancel is lost: %+v", history)
			}
			q.is("500", "CANCELLED")
			if code, out, errs := q.run(parent, "resume", run); code != 0 ||
				!strings.HasPrefix(out, "submitted job 501:") && !strings.HasPrefix(out, "submitted job 500:") {
				t.Fatalf("resume: %d, %s%s", code, out, errs)
			}
			q.must(q.begin(parent, run, q.alive()[0]))
		})
	}
}

// A run that cannot be claimed, be it that the disk is full, is not left behind; one that another command has found is.
func TestSubmitThatCannotClaim(t *testing.T) {
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

// A cancel starts nothing of the run: its owner may do that whatever has become of the run's program.
func TestOwnerCancelsDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string][]string{
		"its program is gone":    {"rm", "bin/ddpbatch"},
		"others can write to it": {"chmod", "g+w", "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			run := l.submit(victim)
			l.must(victim, "sh", append([]string{"-c", `cd "$0" && exec "$@"`, run}, damage...)...)
			if out, code := l.as(attacker, l.program, "cancel", run); code == 0 {
				t.Errorf("another user cancelled it:\n%s", out)
			}
			l.must(victim, l.program, "cancel", run)
			if calls := l.calls(); calls != "scancel by 4242 500\n" {
				t.Errorf("scancel was called so: %q", calls)
			}
		})
	}
}

// A script asks for cores only where the words that sbatch gets beside it do not: Slurm 25.11 refuses both at once.
func TestCoresAskedBesideTheScript(t *testing.T) {
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
