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
	"ddpbatch/internal/runview"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
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

// Where Slurm cannot be asked whether there is a job, none is submitted.
func TestResumeAsksSlurm(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	q.says("down", "")
	if code, _, errs := q.run(parent, "resume", run); code != exit.Refused || !strings.Contains(errs, "cannot reach the Slurm controller") {
		t.Errorf("%d, %s", code, errs)
	}
	q.must(os.Remove(filepath.Join(q.dir, "down")))
	q.must(os.Rename(filepath.Join(q.dir, "squeue"), filepath.Join(q.dir, "away")))
	e, _, errs := q.env(parent)
	e.Environ = []string{"PATH=" + toolsWithoutSlurm(t, q.dir), "HOME=" + q.dir}
	if code := Main(t.Context(), e, []string{"ddpbatch", "resume", run}); code != exit.Refused ||
		!strings.Contains(errs.String(), slurm.ErrNoSlurm.Error()) {
		t.Errorf("without squeue: %d, %s", code, errs)
	}
	if jobs := q.jobs(); !slices.Equal(jobs, []string{"400 CANCELLED"}) {
		t.Errorf("jobs %q", jobs)
	}
	q.must(os.Rename(filepath.Join(q.dir, "away"), filepath.Join(q.dir, "squeue")))

	// a person has submitted the script
	q.says("jobs/450", "RUNNING "+filepath.Join(run, "script.sh"))
	if code, _, errs := q.run(parent, "resume", run); code != exit.Usage || !strings.Contains(errs, "job 450 is still RUNNING") {
		t.Errorf("beside a job by hand: %d, %s", code, errs)
	}
	q.is("450", "COMPLETED")
	q.rights(parent, run)
}

// toolsWithoutSlurm is a PATH of the commands in dir and the tools that they need: this machine may have a Slurm.
func toolsWithoutSlurm(t *testing.T, dir string) string {
	t.Helper()
	tools := t.TempDir()
	for _, name := range []string{"sh", "mkdir", "rmdir"} {
		if err := os.Symlink(must(t, exec.LookPath, name), filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir + ":" + tools
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

	// what Slurm refused leaves nothing, and of a resume what was before
	q.says("mode", "refuse")
	if code, _, errs := q.run(parent, "submit", "job.toml"); code != exit.Refused || len(must(t, rundir.List, filepath.Join(parent, "runs"))) != 1 {
		t.Errorf("refused: %d, %s", code, errs)
	}
	q.is(q.alive()[0], "CANCELLED")
	run := runs[0].Path()
	before := q.status(parent, run)
	if code, _, errs := q.run(parent, "resume", run, "--set", "slurm.nodes=2"); code != exit.Refused || !strings.Contains(errs, "Invalid partition") {
		t.Errorf("refused: %d, %s", code, errs)
	}
	if row := q.status(parent, run); row.State != before.State || row.Job != before.Job || row.Next != "" || must(t, rundir.Open, run).Spec().Nodes != 1 {
		t.Errorf("after a resume that was refused: %+v", row)
	}
	q.rights(parent, run)
}

// A killed command's job is known by its begin, however long Slurm has forgotten it.
func TestLostJobIsKnownByItsBegin(t *testing.T) {
	for _, program := range []string{"this", "of before"} { // the program in a run's directory is that of its submission
		t.Run(program, func(t *testing.T) {
			q := newQueue(t)
			parent, run := q.resumable()
			d := must(t, rundir.Open, run)
			fakeslurm.CutShort(t, d)
			if program == "this" {
				e, _, _ := q.env(parent)
				e.Environ = append(e.Environ, "SLURM_JOB_ID=500")
				q.must(runAttemptBegin(t.Context(), e, run))
				if id, err := d.JobID(); id != "500" || err != nil {
					t.Errorf("recorded is %q, %v", id, err)
				}
			} else {
				n, err := d.ClaimAttempt()
				q.must(err)
				q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: "500"}))
			}
			q.says("jobs/500", "RUNNING "+d.ScriptPath())
			if row := q.status(parent, run); row.Job != "500" || row.State != "RUNNING" || row.Ended {
				t.Errorf("status: %+v", row)
			}
			if code, _, errs := q.run(parent, "resume", run); code != exit.Usage || !strings.Contains(errs, "job 500 is still RUNNING") {
				t.Errorf("resume: %d, %s", code, errs)
			}
			if e, _, _ := q.env(parent); refuseAlive(t.Context(), e, d) == nil {
				t.Error("checkpoints of a job that runs may be removed")
			}
			q.must(d.WriteVerdict(rundir.Verdict{Attempt: 1, JobID: "500", Cause: "crash", Exit: 7, Message: "rank 0 crashed"}))
			q.forgets("500")
			if row := q.status(parent, run); row.Job != "500" || row.State != "FAILED" || !row.Ended {
				t.Errorf("status of a job that is forgotten: %+v", row)
			}
		})
	}
}

// An array, and one element of it alone: the job that was lost is that of what was resumed.
func TestLostJobOfArray(t *testing.T) {
	for name, element := range map[string]bool{"all of it": false, "an element": true} {
		t.Run(name, func(t *testing.T) {
			w := newArrayWorld(t, "0-2")
			w.submitted("12")
			one := w.ran(1, "12", 3)
			w.ran(0, "12", 0)
			w.ran(2, "12", 0)
			lost, want := "13_[0-2]", "0 of 3 elements are done"
			if element {
				lost, want = "13_[1]", "2 of 3 elements are done"
				fakeslurm.CutShort(t, w.run, 1)
			} else {
				fakeslurm.CutShort(t, w.run)
			}
			w.must(os.WriteFile(filepath.Join(w.dir, "squeue"), []byte(fmt.Sprintf(`#!/bin/sh
case "$*" in *--me*) printf '%%s\037' '%s' ;; esac
printf '%s\0371\037PENDING\037None\0371\037n1\037N/A\037N/A\0371:00\037%s\n'
`, w.run.ScriptPath(), lost, w.run.Spec().Name)), 0o700))
			w.status("PENDING", -1, want)
			e, _, _ := w.env(0, 0)
			if err := runResume(t.Context(), e, one, resumeOptions{}); exitCode(err) != exit.Usage || !strings.Contains(err.Error(), "job 13_1 is still PENDING") {
				t.Errorf("resume of an element: %v", err)
			}
			w.status("PENDING", -1, want) // now that it is recorded
			if id, err := runview.NewestJob(one); id != "13_1" || err != nil {
				t.Errorf("the element's job is %s, %v", id, err)
			}
		})
	}
}

// The first element of a lost array job that begins records that job. An element of an older job that begins again changes nothing.
func TestBeginOfElementRecords(t *testing.T) {
	w := newArrayWorld(t, "0-2")
	w.submitted("12")
	fakeslurm.CutShort(t, w.run)
	begin := func(array, index string) {
		t.Helper()
		e, _, _ := w.env(0, 0)
		e.Environ = append(e.Environ, "SLURM_ARRAY_JOB_ID="+array, "SLURM_ARRAY_TASK_ID="+index)
		w.must(runAttemptBegin(t.Context(), e, w.run.Path()))
	}
	for _, step := range []struct{ array, index, recorded string }{{"12", "0", "12"}, {"13", "1", "13"}, {"13", "2", "13"}, {"12", "0", "13"}} {
		begin(step.array, step.index)
		if id, err := w.run.JobID(); id != step.recorded || err != nil {
			t.Errorf("%s_%s has begun, and recorded is %s, %v; want %s", step.array, step.index, id, err, step.recorded)
		}
	}
	if got, err := w.run.Submissions(); err != nil || !slices.Equal(got.Jobs, []string{"12", "13"}) {
		t.Errorf("submissions %q, %v", got.Jobs, err)
	}
}

// A job that waits has not ended of what ended the attempt before; nor is a run finished that was resumed to do more.
func TestStatusOfResumedJob(t *testing.T) {
	for name, exit := range map[string]int{"failed": 7, "done, and to do more": 0} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t)
			parent, run := q.resumable()
			d := must(t, rundir.Open, run)
			n, err := d.ClaimAttempt()
			q.must(err)
			q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: "400"}))
			v := rundir.Verdict{Attempt: n, JobID: "400", Cause: "crash", Exit: exit, Message: "rank 0 exited", Time: time.Now()}
			q.must(d.WriteVerdict(v))
			q.must(d.Append(v.Event()))
			q.is("400", "FAILED")
			if code, out, errs := q.run(parent, "resume", run, "--set", `launch.command=["false"]`); code != 0 {
				t.Fatalf("resume: %d, %s%s", code, out, errs)
			}
			if row := q.status(parent, run); row.State != "PENDING" || row.Cause != "" || row.Exit != nil || row.Message != "" || row.Attempt != 1 {
				t.Errorf("status of the job that waits: %+v", row)
			}
			q.is(q.alive()[0], "CANCELLED")
			if row := q.status(parent, run); row.State != "CANCELLED" || row.Cause != "" || row.Finished() {
				t.Errorf("status of the job that was cancelled while it waited: %+v", row)
			}
			if e, _, _ := q.env(parent); refuseAlive(t.Context(), e, d) != nil {
				t.Errorf("its attempt is taken to be running: %v", refuseAlive(t.Context(), e, d))
			}
			if code, out, errs := q.run(parent, "resume", run); code != 0 || len(q.alive()) != 1 {
				t.Errorf("resume: %d, %s%s", code, out, errs)
			}
		})
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

// What a run that is finished is run on gives it nothing to do.
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
	if code, out, errs := q.run(parent, "resume", run, "--set", `launch.command=["false"]`); code != 0 || len(q.alive()) != 1 {
		t.Errorf("another command: %d, %s%s", code, out, errs)
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

// While a command on another machine submits the run, or Slurm cannot be asked, nobody says that it has no job.
func TestSubmissionUnderWay(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	d := must(t, rundir.Open, run)
	fakeslurm.CutShort(t, d)
	q.says("down", "")
	for _, command := range []string{"status", "cancel", "resume"} {
		if code, _, errs := q.run(parent, command, run); code != exit.Refused || !strings.Contains(errs, "cannot reach the Slurm controller") {
			t.Errorf("%s while Slurm does not answer: %d, %s", command, code, errs)
		}
	}
	q.must(os.Remove(filepath.Join(q.dir, "down")))
	fakeslurm.ClaimByOther(t, d)
	const who = fakeslurm.OtherClaimWords
	if row := q.status(parent, run); row.Ended || row.Next != "it is being submitted: "+who {
		t.Errorf("status: %+v", row)
	}
	for command, says := range map[string]string{
		"cancel": " is just being submitted: " + who + "; cancel it when that has ended",
		"resume": "another command is submitting this run: " + who + "; wait for its end; if it was killed, its claim lapses within 2m0s",
	} {
		if code, _, errs := q.run(parent, command, run); code != exit.Usage || !strings.Contains(errs, says) {
			t.Errorf("%s: %d, %s", command, code, errs)
		}
	}
	if jobs := q.jobs(); !slices.Equal(jobs, []string{"400 CANCELLED"}) {
		t.Errorf("jobs %q", jobs)
	}
}

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

// Who has lost the claim while it prepared the run submits nothing, and leaves what is in the run as it is, since another command may be
// submitting that.
func TestLostClaimSubmitsNothing(t *testing.T) {
	t.Run("submit", func(t *testing.T) {
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
	})
	t.Run("resume", func(t *testing.T) {
		q := newQueue(t)
		parent, run := q.resumable()
		d := must(t, rundir.Open, run)
		before := must(t, os.ReadFile, d.SpecPath())
		q.must(os.WriteFile(d.ScriptPath(), []byte("of another command"), 0o600))
		q.first("squeue", q.claimsLine(run))
		code, out, errs := q.run(parent, "resume", run, "--set", "slurm.nodes=2")
		if code != exit.Usage || !strings.Contains(errs, byAnother) || strings.Contains(errs, "may have taken") {
			t.Errorf("%d, %s%s", code, out, errs)
		}
		if now := must(t, os.ReadFile, d.SpecPath()); string(now) != string(before) {
			t.Errorf("spec.json is now %s", now)
		}
		if now := must(t, os.ReadFile, d.ScriptPath()); string(now) != "of another command" {
			t.Errorf("the script is now %s", now)
		}
		if len(q.events(run, rundir.EventSubmitting)) > 0 || len(q.alive()) > 0 {
			t.Errorf("jobs %q", q.jobs())
		}
	})
}

// Who has lost the claim while sbatch ran undoes nothing of what is another command's by then, and its job does not begin.
func TestClaimIsLostDuringSbatch(t *testing.T) {
	t.Run("taken", func(t *testing.T) {
		q := newQueue(t)
		parent, run := q.resumable()
		q.first("sbatch", q.claimsLine(run))
		code, out, errs := q.run(parent, "resume", run)
		if code != exit.Usage || !strings.Contains(errs, "job 500 was submitted too late: ") ||
			!strings.Contains(errs, byAnother+"; to take it back: scancel 500") {
			t.Errorf("%d, %s%s", code, out, errs)
		}
		if strings.Contains(errs, "may have taken") {
			t.Error(errs)
		}
		q.first("sbatch", "")
		if code, out, errs := q.run(parent, "resume", run); code != 0 || !strings.HasPrefix(out, "submitted job 501:") {
			t.Errorf("the other command: %d, %s%s", code, out, errs)
		}
		if err := q.begin(parent, run, "500"); exitCode(err) != exit.Never || !strings.Contains(err.Error(), "submitted too late") {
			t.Errorf("the job that came too late begins: %v", err)
		}
		q.must(q.begin(parent, run, "501"))
		if row := q.status(parent, run); row.Job != "501" {
			t.Errorf("status: %+v", row)
		}
	})
	t.Run("refused", func(t *testing.T) {
		q := newQueue(t)
		parent := t.TempDir()
		q.jobFile(parent)
		q.says("mode", "refuse")
		q.first("sbatch", q.claimsLine(filepath.Join(parent, "runs", "x-*")))
		code, out, errs := q.run(parent, "submit", "job.toml")
		if code != exit.Usage || !strings.Contains(errs, "Invalid partition") || !strings.Contains(errs, byAnother) {
			t.Errorf("%d, %s%s", code, out, errs)
		}
		runs := must(t, rundir.List, filepath.Join(parent, "runs"))
		if len(runs) != 1 || len(q.events(runs[0].Path(), rundir.EventNotTaken)) > 0 {
			t.Errorf("the run of another command was changed: %v", runs)
		}
	})
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

// After a submission that was lost a person may submit the script by hand, as at all times: ids rise, so that this is not the lost job.
func TestJobByHandAfterLostSubmission(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	d := must(t, rundir.Open, run)
	fakeslurm.CutShort(t, d)
	if code, _, errs := q.run(parent, "resume", run); code != 0 || !slices.Equal(q.alive(), []string{"500"}) {
		t.Fatalf("resume: %d, %s", code, errs)
	}
	if err := q.begin(parent, run, "499"); exitCode(err) != exit.Never {
		t.Errorf("the lost job begins: %v", err)
	}
	q.is("500", "COMPLETED")
	if err := q.begin(parent, run, "1001"); err != nil {
		t.Errorf("a job by hand does not begin: %v", err)
	}
	if id, err := d.JobID(); id != "1001" || err != nil {
		t.Errorf("recorded is %q, %v", id, err)
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

// What keeps a run from being claimed is told, also where a process simulates it just now.
func TestResumeSaysWhatKeepsItFromClaiming(t *testing.T) {
	q := newQueue(t)
	run, _ := pretendRun(t)
	id := fmt.Sprint(os.Getpid())
	q.must(run.SetJobID(id))
	log, err := os.Create(run.SlurmLogPath(id)) // by which this process is that which simulates the run
	q.must(err)
	defer log.Close()
	q.must(os.WriteFile(filepath.Join(run.Path(), "claims"), nil, 0o600))
	code, _, errs := q.run(filepath.Dir(run.Path()), "resume", run.Path())
	if code != exit.Failed || !strings.Contains(errs, "claim the run") || !strings.Contains(errs, "not a directory") {
		t.Errorf("%d, %s", code, errs)
	}
}

// However many runs of a user have a submission that was cut short, Slurm is asked once for jobs of their scripts.
func TestStatusAsksOnceForLostJobs(t *testing.T) {
	q := newQueue(t)
	q.first("squeue", fmt.Sprintf(`echo "$*" >>'%s/asked'`, q.dir))
	var runs []*rundir.Dir
	for i := range 3 {
		_, run := q.resumable()
		d := must(t, rundir.Open, run)
		fakeslurm.CutShort(t, d)
		q.says(fmt.Sprintf("jobs/50%d", i), "PENDING "+d.ScriptPath())
		runs = append(runs, d)
	}
	e, _, _ := q.env(t.TempDir())
	rows, err := e.viewer().Statuses(t.Context(), runs)
	q.must(err)
	for i, row := range rows {
		if want := fmt.Sprintf("50%d", i); row.Job != want || row.State != "PENDING" {
			t.Errorf("run %d: %+v; want job %s", i, row, want)
		}
	}
	asked := string(must(t, os.ReadFile, filepath.Join(q.dir, "asked")))
	if strings.Count(asked, "--me") != 1 || strings.Count(asked, "\n") != 2 {
		t.Errorf("squeue was asked:\n%s", asked)
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
