package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// If several commands resume a run at once, one submits it, and the others report why they do not.
func TestOnlyOneOfResumesAtOnceSubmits(t *testing.T) {
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
			_ = cmd.Run() // the exit code is compared below
			ends <- end{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
		}()
	}
	done := 0
	for range all {
		switch one := <-ends; {
		case one.code == 0:
			done++
		case one.code != exit.Usage ||
			!strings.Contains(one.errs, "another command has claimed this run: resume by process ") &&
				!strings.Contains(one.errs, "is still PENDING"):
			t.Errorf("%+v", one)
		}
	}
	if alive := q.alive(); done != 1 || len(alive) != 1 {
		t.Errorf("%d have submitted; jobs %q", done, alive)
	}
}

// If a run has nothing left to do, resume reports that and submits nothing.
func TestResumeOfAFinishedRunSubmitsNothing(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	d := must(t, rundir.Open, run)
	n, err := d.ClaimAttempt()
	q.must(err)
	q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: "400"}))
	q.must(d.WriteVerdict(rundir.Verdict{Attempt: n, JobID: "400", Cause: "done"}))
	q.is("400", "COMPLETED")
	code, out, _ := q.run(parent, "resume", run, "--set", "slurm.nodes=1")
	if code != 0 || !strings.HasPrefix(out, "x is finished, and --set slurm.nodes=1 gives it nothing more to do; to run it again ") {
		t.Errorf("%d, %q", code, out)
	}
	if left := q.jobs(); !slices.Equal(left, []string{"400 COMPLETED"}) {
		t.Errorf("jobs %q", left)
	}
}

// resume does not read a job file again that has changed. It prints one line about that, also for a run that is finished.
func TestResumeSaysThatTheJobFileIsNotReadAgain(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.jobFile(parent)
	if code, _, errs := q.run(parent, "submit", "job.toml"); code != 0 || errs != "" {
		t.Fatalf("submit: %d, %q", code, errs)
	}
	run := must(t, rundir.List, filepath.Join(parent, "runs"))[0]
	resumed := func(want string) {
		t.Helper()
		for _, id := range q.alive() {
			q.is(id, "CANCELLED")
		}
		if code, _, errs := q.run(parent, "resume", run.Path()); code != 0 || errs != want {
			t.Errorf("%d, %q, want %q", code, errs, want)
		}
	}
	const says = "ddpbatch: job.toml has changed since the run was made, and resume does not read it again: give the changes with " +
		"--set, or start a new run\n"
	resumed("")
	path := filepath.Join(parent, "job.toml")
	q.must(os.WriteFile(path, []byte("name = \"x\"\n[launch]\ncommand = [\"false\"]\n"), 0o600))
	resumed(says)
	q.must(os.Remove(path))
	resumed("")
}

// resume prints the same warnings as submit for a job with these settings. It omits them if ranks run in a copy of the code that has the
// script.
func TestResumeWarnsOfWhatIsNotHere(t *testing.T) {
	q := newQueue(t)
	sets := []string{"--set", `launch.command=["sh", "missing.sh"]`}
	const says = "launch.command: the script \"missing.sh\" does not exist on this machine: correct the path, unless the nodes see it " +
		"(warning)\n"
	parent, run := q.resumable()
	q.must(os.WriteFile(filepath.Join(parent, "other.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	if code, _, errs := q.run(parent, append([]string{"submit", "other.toml"}, sets...)...); code != 0 || !strings.HasSuffix(errs, says) {
		t.Errorf("submit: %d, %q", code, errs)
	}
	if code, _, errs := q.run(parent, append([]string{"resume", run}, sets...)...); code != 0 || !strings.HasSuffix(errs, says) ||
		strings.Count(errs, "\n") != 1 {
		t.Errorf("resume: %d, %q", code, errs)
	}

	d := must(t, rundir.Open, run)
	job := must(t, jobfile.OfRun, d)
	job.CodeDir = "."
	spec, err := job.Spec(d.Spec())
	q.must(err)
	q.must(d.WriteSpec(spec))
	q.must(os.MkdirAll(job.RanksDir(run), 0o700))
	for _, id := range q.alive() {
		q.is(id, "CANCELLED")
	}
	if code, _, errs := q.run(parent, "resume", run, "--set", "slurm.nodes=1"); code != 0 || errs != "" {
		t.Errorf("resume of a run with a copy: %d, %q", code, errs)
	}
}

// resume warns of a data file that submit refuses, because the nodes may see other files.
func TestResumeWarnsOfDataThatIsNotHere(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte(`name = "x"
[train]
epochs = 1
batch_size = 4
loss = "mse"
model = { kind = "dense" }
data = { kind = "generated" }
`), 0o600))
	if code, out, errs := q.run(parent, "submit", "job.toml"); code != 0 {
		t.Fatalf("submit: %d, %s%s", code, out, errs)
	}
	for _, id := range q.alive() {
		q.is(id, "CANCELLED")
	}
	run := must(t, rundir.List, filepath.Join(parent, "runs"))[0].Path()
	code, _, errs := q.run(parent, "resume", run, "--set", "train.init=nosuch.safetensors")
	if code != 0 || !strings.HasPrefix(errs, "--set train.init: stat ") || strings.Count(errs, "(warning)\n") != 1 {
		t.Errorf("%d, %q", code, errs)
	}
}

// resume refuses a job that does not fit the newest checkpoint before the job waits in a queue.
func TestResumeThatDoesNotFitIsRefused(t *testing.T) {
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
		if code != exit.Mismatch || out != "" ||
			!strings.Contains(errs, "the checkpoint does not fit this job: ") || !strings.Contains(errs, says) {
			t.Errorf("%s: %d, %s%s", set, code, out, errs)
		}
	}
	if now := must(t, rundir.Open, d.Path()).Spec(); now.Before != nil || string(now.Job) != string(spec.Job) {
		t.Errorf("a refused resume has changed the job: %s", now.Job)
	}
	if jobs := q.jobs(); len(jobs) > 0 {
		t.Errorf("jobs %q", jobs)
	}
	for _, sets := range [][]string{
		{"train.epochs=2", "slurm.nodes=2", "train.optimizer.lr=0.1"}, {"train.batch_size=64", "checkpoint.resume=never"},
	} {
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

// A --set for one element of an array is for all of them, which resume says if others have not ended.
func TestResumeOfAnElementNamesTheOthersThatItChanges(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-5")
	p := &pretendSlurm{a.Slurm, t, a.Dir}
	a.Submitted("12")
	element := a.Ran(0, "12", 3)
	a.Ran(1, "12", 0)
	a.Queue("12_0 FAILED", "12_1 COMPLETED", "12_2 RUNNING", "12_[3-5%1] PENDING")
	p.first("sbatch", "echo 'sbatch: error: Invalid qos' >&2; exit 1")
	const changes = "ddpbatch: --set is for the whole array: it also changes elements 2-5, which have not ended\n"
	changesOne := strings.NewReplacer("elements 2-5", "element 2", "have", "has").Replace(changes)
	for _, test := range []struct {
		queue, want string
		sets        []string
	}{
		{"12_[3-5%1] PENDING", changes, []string{"launch.grace=5s"}},
		{"12_[3-5%1] PENDING", "", []string{"checkpoint.resume=never"}},
		{"12_[3-5%1] PENDING", "", nil},
		{"12_[3-5%1] CANCELLED", changesOne, []string{"launch.grace=5s"}},
	} {
		a.Queue("12_0 FAILED", "12_1 COMPLETED", "12_2 RUNNING", test.queue)
		e, _, errs := p.env(0, 0)
		err := runResume(t.Context(), e, element, resumeOptions{sets: test.sets})
		said, _, _ := strings.Cut(errs.String(), "time=") // without a warning about this test's variables
		if said != test.want || err == nil || !strings.Contains(err.Error(), "Invalid qos") {
			t.Errorf("with %q: %v, said %q; want %q", test.sets, err, said, test.want)
		}
	}
}
