package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// queue is a PATH with a pretend Slurm that keeps jobs: sbatch adds one, squeue tells of them, scancel ends one. A real Slurm cannot be had to take a job and
// kill the command that submits it at a given moment, as this sbatch does where the file "mode" says so. What else is asked of Slurm it does not know.
type queue struct {
	t   *testing.T
	dir string
}

// All jobs are called x. What squeue says of ids that it does not know is 22.05's.
const queueCommands = `#!/bin/sh
cd "${0%/*}" || exit 1
tell() { [ ! -e "$1" ] || read -r said <"$1"; }
show() {
	read -r state path <"jobs/$1"
	said=None; tell reason
	[ -z "$2" ] || printf '%s\037' "$path"
	printf '%s\037%s\037%s\037%s\0371\037\037N/A\037N/A\0371:00\037x\n' "$1" "$1" "$state" "$said"
}
take() {
	until mkdir jobs/.lock 2>/dev/null; do :; done
	tell next
	id=$said
	echo $((id + 1)) >next
	for last in "$@"; do :; done
	echo "PENDING $last" >"jobs/$id"
	rmdir jobs/.lock
}
case ${0##*/} in
sbatch)
	tell mode
	case $said in
	refuse) echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1 ;;
	lost) take "$@"; echo 'sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received' >&2; exit 1 ;;
	before) kill -9 $PPID; exec sleep 60 ;; # as this process dies with that
	esac
	mode=$said
	take "$@"
	[ "$mode" != after ] || kill -9 $PPID
	echo "$id"
	[ "$mode" != told ] || kill -9 $PPID ;;
squeue)
	[ ! -e down ] || { echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1; }
	case "$*" in
	*--me*|*--users*) for job in jobs/*; do [ ! -e "$job" ] || show "${job#jobs/}" with; done ;;
	*) ids=${*#* -j } ids=${ids%% *} found=1 IFS=,
		for id in $ids; do [ ! -e "jobs/$id" ] || { IFS=' ' show "$id"; found=0; }; done
		[ $found = 0 ] || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; } ;;
	esac ;;
scancel) read -r state path <"jobs/$1"; echo "CANCELLED $path" >"jobs/$1" ;;
sacct) echo 'Slurm accounting storage is disabled' >&2; exit 1 ;;
scontrol) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
esac
`

func newQueue(t *testing.T) *queue {
	t.Helper()
	q := &queue{t: t, dir: t.TempDir()}
	for _, name := range []string{"sbatch", "squeue", "scancel", "sacct", "scontrol"} {
		q.must(os.WriteFile(filepath.Join(q.dir, name), []byte(queueCommands), 0o700))
	}
	q.must(os.Mkdir(filepath.Join(q.dir, "jobs"), 0o700))
	q.says("next", "500")
	q.says("mode", "")
	return q
}

func (q *queue) must(err error) {
	q.t.Helper()
	if err != nil {
		q.t.Fatal(err)
	}
}

// says sets what decides how the commands behave.
func (q *queue) says(name, text string) {
	q.t.Helper()
	q.must(os.WriteFile(filepath.Join(q.dir, name), []byte(text+"\n"), 0o600))
}

func (q *queue) environ() []string {
	return []string{"PATH=" + q.dir + ":/usr/bin:/bin", "HOME=" + q.dir}
}

// env is that of a command whose folder is parent.
func (q *queue) env(parent string) (e *env, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return &env{
		Out: out, Err: errs, Dir: parent, Now: time.Now, Hostname: "login1", Environ: q.environ(),
		Executable: func() (string, error) { return "/bin/true", nil },
		Terminal:   func(io.Writer) (int, bool) { return 0, false },
	}, out, errs
}

// jobs are those that Slurm has, with their states: "501 PENDING".
func (q *queue) jobs() (jobs []string) {
	q.t.Helper()
	entries, err := os.ReadDir(filepath.Join(q.dir, "jobs"))
	q.must(err)
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(q.dir, "jobs", entry.Name()))
		q.must(err)
		state, _, _ := strings.Cut(string(text), " ")
		jobs = append(jobs, entry.Name()+" "+state)
	}
	return jobs
}

// alive are the ids of the jobs that have not ended.
func (q *queue) alive() (ids []string) {
	q.t.Helper()
	for _, job := range q.jobs() {
		if id, state, _ := strings.Cut(job, " "); state == "PENDING" || state == "RUNNING" {
			ids = append(ids, id)
		}
	}
	return ids
}

// is changes the state of a job.
func (q *queue) is(id, state string) {
	q.t.Helper()
	path := filepath.Join(q.dir, "jobs", id)
	text, err := os.ReadFile(path)
	q.must(err)
	_, script, _ := strings.Cut(string(text), " ")
	q.must(os.WriteFile(path, []byte(state+" "+script), 0o600))
}

// forgets is what the controller does with ended jobs after some minutes (MinJobAge).
func (q *queue) forgets(id string) {
	q.t.Helper()
	q.must(os.Remove(filepath.Join(q.dir, "jobs", id)))
}

// run does what a person does with a command line.
func (q *queue) run(parent string, args ...string) (code int, out, errs string) {
	q.t.Helper()
	e, o, s := q.env(parent)
	code = Main(q.t.Context(), e, append([]string{"ddpbatch"}, args...))
	return code, o.String(), s.String()
}

// status is the only row of status.
func (q *queue) status(parent, run string) jobStatus {
	q.t.Helper()
	e, _, _ := q.env(parent)
	d, err := rundir.Open(run)
	q.must(err)
	row, err := statusOf(q.t.Context(), e, d)
	q.must(err)
	return row
}

// rights checks, of a run that a killed command left behind, that status, cancel and resume do the right thing: nobody loses the job that Slurm
// has taken, nobody submits another beside it, and the run can be resumed once that is over.
func (q *queue) rights(parent, run string) {
	q.t.Helper()
	alive := q.alive()
	if len(alive) > 1 {
		q.t.Fatalf("two jobs of a run: %q", alive)
	}
	q.says("mode", "")
	row := q.status(parent, run)
	if len(alive) == 1 {
		if row.Job != alive[0] || row.State != "PENDING" || row.ended {
			q.t.Errorf("status of job %s: %+v", alive[0], row)
		}
		if code, out, errs := q.run(parent, "resume", run); code != exitUsage || !strings.Contains(errs, "job "+alive[0]+" is still PENDING") {
			q.t.Errorf("resume beside a job: %d, %s%s", code, out, errs)
		}
		if code, out, errs := q.run(parent, "cancel", run); code != 0 || !strings.HasPrefix(out, "cancelled job "+alive[0]+"\n") {
			q.t.Errorf("cancel: %d, %s%s", code, out, errs)
		}
		if left := q.alive(); len(left) > 0 {
			q.t.Errorf("cancelled, and alive are %q", left)
		}
		if row := q.status(parent, run); row.Job != alive[0] || row.State != "CANCELLED" || !row.ended {
			q.t.Errorf("status of the cancelled job %s: %+v", alive[0], row)
		}
	} else {
		if !row.ended || row.State != "UNSUBMITTED" && row.State != "CANCELLED" {
			q.t.Errorf("status of a run without a job: %+v", row)
		}
		if code, out, errs := q.run(parent, "cancel", run); code != exitUsage || strings.Contains(errs, "squeue") {
			q.t.Errorf("cancel without a job: %d, %s%s", code, out, errs)
		}
	}
	code, out, errs := q.run(parent, "resume", run)
	now := q.alive()
	if code != 0 || len(now) != 1 || !strings.HasPrefix(out, "submitted job "+now[0]+":") {
		q.t.Fatalf("resume: %d, %s%s; alive are %q", code, out, errs, now)
	}
	if row := q.status(parent, run); row.Job != now[0] || row.State != "PENDING" || row.ended || row.Next != "" {
		q.t.Errorf("status after resume: %+v", row)
	}
	if code, out, errs := q.run(parent, "resume", run); code != exitUsage || !strings.Contains(errs, "job "+now[0]+" is still PENDING") || len(q.alive()) != 1 {
		q.t.Errorf("resume beside the resumed job: %d, %s%s", code, out, errs)
	}
}

// resumable is a run whose first job has ended.
func (q *queue) resumable() (parent, run string) {
	q.t.Helper()
	d := attemptRun(q.t, "")
	parent = filepath.Dir(d.Path())
	q.must(os.WriteFile(d.JobFilePath(), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	q.must(writeScript(d, must(q.t, jobOf, d), ""))
	q.says("jobs/400", "CANCELLED "+d.ScriptPath())
	q.must(d.SetJobID("400"))
	q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmit, Detail: "job 400"}))
	return parent, d.Path()
}

func must[A, B any](t *testing.T, f func(A) (B, error), a A) B {
	t.Helper()
	b, err := f(a)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

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
			code, out, errs := q.run(parent, "resume", run)
			ends <- end{code, out, errs}
		}()
	}
	done := 0
	for range all {
		switch one := <-ends; {
		case one.code == 0:
			done++
		case one.code != exitUsage || !strings.Contains(one.errs, "another command is submitting this run: resume by process ") && !strings.Contains(one.errs, "is still PENDING"):
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
	if code, _, errs := q.run(parent, "resume", run); code != exitRefused || !strings.Contains(errs, "cannot reach the Slurm controller") {
		t.Errorf("%d, %s", code, errs)
	}
	q.must(os.Remove(filepath.Join(q.dir, "down")))
	q.must(os.Rename(filepath.Join(q.dir, "squeue"), filepath.Join(q.dir, "away")))
	if code, _, errs := q.run(parent, "resume", run); code != exitRefused { // this machine may have one, without a cluster
		t.Errorf("without squeue: %d, %s", code, errs)
	}
	if jobs := q.jobs(); !slices.Equal(jobs, []string{"400 CANCELLED"}) {
		t.Errorf("jobs %q", jobs)
	}
	q.must(os.Rename(filepath.Join(q.dir, "away"), filepath.Join(q.dir, "squeue")))

	// a person has submitted the script
	q.says("jobs/450", "RUNNING "+filepath.Join(run, "script.sh"))
	if code, _, errs := q.run(parent, "resume", run); code != exitUsage || !strings.Contains(errs, "job 450 is still RUNNING") {
		t.Errorf("beside a job by hand: %d, %s", code, errs)
	}
	q.is("450", "COMPLETED")
	q.rights(parent, run)
}

// What Slurm says after it may have taken the job is no refusal: the run stays, and its job is found.
func TestSubmitThatWasHeard(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	q.says("mode", "lost")
	code, out, errs := q.run(parent, "submit", "job.toml")
	runs := must(t, rundir.List, filepath.Join(parent, "runs"))
	if code != exitRefused || out != "" || len(runs) != 1 || !strings.Contains(errs, "ddpbatch status "+runs[0].Path()) {
		t.Fatalf("%d, %s%s; runs %v", code, out, errs, runs)
	}
	q.rights(parent, runs[0].Path())

	// what Slurm refused leaves nothing, and of a resume what was before
	q.says("mode", "refuse")
	if code, _, errs := q.run(parent, "submit", "job.toml"); code != exitRefused || len(must(t, rundir.List, filepath.Join(parent, "runs"))) != 1 {
		t.Errorf("refused: %d, %s", code, errs)
	}
	q.is(q.alive()[0], "CANCELLED")
	run := runs[0].Path()
	before := q.status(parent, run)
	if code, _, errs := q.run(parent, "resume", run, "--set", "slurm.nodes=2"); code != exitRefused || !strings.Contains(errs, "Invalid partition") {
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
			q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}))
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
			if row := q.status(parent, run); row.Job != "500" || row.State != "RUNNING" || row.ended {
				t.Errorf("status: %+v", row)
			}
			if code, _, errs := q.run(parent, "resume", run); code != exitUsage || !strings.Contains(errs, "job 500 is still RUNNING") {
				t.Errorf("resume: %d, %s", code, errs)
			}
			if e, _, _ := q.env(parent); refuseAlive(t.Context(), e, d, "") == nil {
				t.Error("checkpoints of a job that runs may be removed")
			}
			q.must(d.WriteVerdict(rundir.Verdict{Attempt: 1, JobID: "500", Cause: "crash", Exit: 7, Message: "rank 0 crashed"}))
			q.forgets("500")
			if row := q.status(parent, run); row.Job != "500" || row.State != "FAILED" || !row.ended {
				t.Errorf("status of a job that is forgotten: %+v", row)
			}
		})
	}
}

// A job that nobody knew of when the run was submitted once more must not begin beside the other.
func TestLostJobBeginsTooLate(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	d := must(t, rundir.Open, run)
	q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}))
	if code, _, errs := q.run(parent, "resume", run); code != 0 || len(q.alive()) != 1 {
		t.Fatalf("resume: %d, %s", code, errs)
	}
	id := q.alive()[0]
	begin := func(job string) error {
		e, _, _ := q.env(parent)
		e.Environ = append(e.Environ, "SLURM_JOB_ID="+job)
		return runAttemptBegin(t.Context(), e, run)
	}
	if err := begin("499"); exitCode(err) != exitNever || !strings.Contains(err.Error(), "submitted as job "+id+" since; to go on: ddpbatch resume "+run) {
		t.Errorf("the lost job begins: %v", err)
	}
	q.must(begin(id))
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
			submitting := rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}
			lost, want := "13_[0-2]", "0 of 3 elements are done"
			if index := 1; element {
				submitting.Element, lost, want = &index, "13_[1]", "2 of 3 elements are done"
			}
			w.must(w.run.Append(submitting))
			w.must(os.WriteFile(filepath.Join(w.dir, "squeue"), []byte(fmt.Sprintf(`#!/bin/sh
case "$*" in *--me*) printf '%%s\037' '%s' ;; esac
printf '%s\0371\037PENDING\037None\0371\037n1\037N/A\037N/A\0371:00\037%s\n'
`, w.run.ScriptPath(), lost, w.run.Spec().Name)), 0o700))
			w.status("PENDING", -1, want)
			e, _, _ := w.env(0, 0)
			if err := runResume(t.Context(), e, one, resumeOptions{}); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "job 13_1 is still PENDING") {
				t.Errorf("resume of an element: %v", err)
			}
			w.status("PENDING", -1, want) // now that it is recorded
			if id, err := newestJob(one); id != "13_1" || err != nil {
				t.Errorf("the element's job is %s, %v", id, err)
			}
		})
	}
}

// silence of Slurm for a moment: an element of another job that begins does not take the array's id.
func TestBeginOfElementRecords(t *testing.T) {
	w := newArrayWorld(t, "0-2")
	w.submitted("12")
	w.must(w.run.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}))
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
	if got := submissions(w.run); !slices.Equal(got, []string{"12", "13"}) {
		t.Errorf("submissions %q", got)
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
			if row := q.status(parent, run); row.State != "CANCELLED" || row.Cause != "" || row.finished() {
				t.Errorf("status of the job that was cancelled while it waited: %+v", row)
			}
			if e, _, _ := q.env(parent); refuseAlive(t.Context(), e, d, "") != nil {
				t.Errorf("its attempt is taken to be running: %v", refuseAlive(t.Context(), e, d, ""))
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
	q.says("reason", "PartitionConfig") // Slurm 25.11's, of a job of 99 nodes where there are four (slurm-corpus/25.11.7/refused/csq.txt)
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
		if code != exitMismatch || out != "" || !strings.Contains(errs, "the checkpoint does not fit this job: ") || !strings.Contains(errs, says) {
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
