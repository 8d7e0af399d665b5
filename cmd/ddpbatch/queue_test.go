package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

// queue is a PATH with a pretend Slurm that keeps jobs: sbatch adds one, squeue lists them, scancel ends one. The file "mode" can tell this
// sbatch to accept a job and kill the command that submits it at a given moment, which a real Slurm cannot do. It supports no other
// requests. Each named cluster has its jobs, and files like "next", in its own folder below clusters. If several clusters are named, sbatch
// takes the last. The cluster called "lost" does not answer.
type queue struct {
	t   *testing.T
	dir string
}

// All jobs are called x. For ids that it does not know, squeue prints what Slurm 22.05 prints.
const queueCommands = `#!/bin/sh
cd "${0%/*}" || exit 1
root=$PWD named= on=${SLURM_CLUSTERS-}
case $1 in --clusters=*) named=$1 on=${1#*=}; shift ;; esac
on=${on##*,}
[ -z "$on" ] || { mkdir -p "clusters/$on/jobs" && cd "clusters/$on" || exit 1; }
[ -z "$on" ] || [ -e next ] || echo 500 >next
[ "$on" != lost ] || { echo "${0##*/}: error: Unable to contact slurm controller (connect failure)" >&2; exit 1; }
tell() { for file in "$root/$1" "$1"; do [ ! -e "$file" ] || read -r said <"$file"; done; }
show() {
	read -r state path <"jobs/$1"
	said=None; tell reason
	[ -z "$2" ] || printf '%s\037' "$path"
	printf '%s\037%s\037%s\037%s\037N/A\0371:00\037x\n' "$1" "$1" "$state" "$said"
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
	printf '%s\n' "${named:+$named }${*%"${*##* }"}" >>"$root/calls"
	tell next
	at=$said
	tell mode
	[ "${said%@*}" = "$said" ] || { [ "${said#*@}" = "$at" ] && said=${said%@*} || said=; } # refuse@502: that job alone
	case $said in
	refuse) echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1 ;;
	lost) take "$@"; echo 'sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received' >&2; exit 1 ;;
	before) kill -9 $PPID; exec sleep 60 ;; # as this process dies with that
	esac
	mode=$said
	take "$@"
	[ "$mode" != after ] || kill -9 $PPID
	echo "$id${on:+;$on}"
	[ "$mode" != told ] || kill -9 $PPID ;;
squeue)
	case "$*" in
	*--me*|*--users*) for job in jobs/*; do [ ! -e "$job" ] || show "${job#jobs/}" with; done ;;
	*) ids=${*#* -j } ids=${ids%% *} found=1 IFS=,
		for id in $ids; do [ ! -e "jobs/$id" ] || { IFS=' ' show "$id"; found=0; }; done
		[ $found = 0 ] || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; } ;;
	esac ;;
scancel) for id in "$@"; do read -r state path <"jobs/$id"; echo "CANCELLED $path" >"jobs/$id"; done ;;
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
	q.must(os.WriteFile(filepath.Join(q.dir, "calls"), nil, 0o600))
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

// says writes a file that controls how the commands behave.
func (q *queue) says(name, text string) {
	q.t.Helper()
	q.must(os.WriteFile(filepath.Join(q.dir, name), []byte(text+"\n"), 0o600))
}

func (q *queue) environ() []string {
	return []string{"PATH=" + q.dir + ":/usr/bin:/bin", "HOME=" + q.dir}
}

// env returns the environment of a command that runs in the folder parent.
func (q *queue) env(parent string) (e *env, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return &env{
		Out: out, Err: errs, Dir: parent, Now: time.Now, Hostname: "login1", Environ: q.environ(),
		Executable: func() (string, error) { return "/bin/true", nil },
		Terminal:   func(io.Writer) (int, bool) { return 0, false },
	}, out, errs
}

// jobs returns the jobs that Slurm has, with their states: "501 PENDING".
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

// alive returns the ids of the jobs that have not ended.
func (q *queue) alive() (ids []string) {
	q.t.Helper()
	for _, job := range q.jobs() {
		if id, state, _ := strings.Cut(job, " "); state == "PENDING" || state == "RUNNING" {
			ids = append(ids, id)
		}
	}
	return ids
}

// is sets the state of a job.
func (q *queue) is(id, state string) {
	q.t.Helper()
	path := filepath.Join(q.dir, "jobs", id)
	text, err := os.ReadFile(path)
	q.must(err)
	_, script, _ := strings.Cut(string(text), " ")
	q.must(os.WriteFile(path, []byte(state+" "+script), 0o600))
}

// run runs a command line in this process.
func (q *queue) run(parent string, args ...string) (code int, out, errs string) {
	q.t.Helper()
	e, o, s := q.env(parent)
	code = Main(q.t.Context(), e, append([]string{"ddpbatch"}, args...))
	return code, o.String(), s.String()
}

// command returns the program with arguments, in a folder, with q's Slurm in its PATH.
func (q *queue) command(parent string, args ...string) *exec.Cmd {
	q.t.Helper()
	cmd := exec.Command(must(q.t, exec.LookPath, "ddpbatch"), args...)
	cmd.Dir, cmd.Env = parent, q.environ()
	return cmd
}

// status returns the row of status for a run.
func (q *queue) status(parent, run string) runview.RunStatus {
	q.t.Helper()
	e, _, _ := q.env(parent)
	d, err := rundir.Open(run)
	q.must(err)
	row, err := e.viewer().Status(q.t.Context(), d)
	q.must(err)
	return row
}

// rights checks that status, cancel and resume handle a run that a killed command left behind: no command loses the job that Slurm has
// accepted or submits a second one beside it, and the run can be resumed after that job.
func (q *queue) rights(parent, run string) {
	q.t.Helper()
	alive := q.alive()
	if len(alive) > 1 {
		q.t.Fatalf("two jobs of a run: %q", alive)
	}
	q.says("mode", "")
	row := q.status(parent, run)
	if len(alive) == 1 {
		if row.Job != alive[0] || row.State != "PENDING" || row.Ended {
			q.t.Errorf("status of job %s: %+v", alive[0], row)
		}
		if code, out, errs := q.run(parent, "resume", run); code != exit.Usage ||
			!strings.Contains(errs, "job "+alive[0]+" is still PENDING") {
			q.t.Errorf("resume beside a job: %d, %s%s", code, out, errs)
		}
		if code, out, errs := q.run(parent, "cancel", run); code != 0 || !strings.HasPrefix(out, "cancelled job "+alive[0]+"\n") {
			q.t.Errorf("cancel: %d, %s%s", code, out, errs)
		}
		if left := q.alive(); len(left) > 0 {
			q.t.Errorf("cancelled, and alive are %q", left)
		}
		if row := q.status(parent, run); row.Job != alive[0] || row.State != "CANCELLED" || !row.Ended {
			q.t.Errorf("status of the cancelled job %s: %+v", alive[0], row)
		}
	} else {
		if !row.Ended || row.State != "UNSUBMITTED" && row.State != "CANCELLED" {
			q.t.Errorf("status of a run without a job: %+v", row)
		}
		if code, out, errs := q.run(parent, "cancel", run); code != exit.Usage || strings.Contains(errs, "squeue") {
			q.t.Errorf("cancel without a job: %d, %s%s", code, out, errs)
		}
	}
	code, out, errs := q.run(parent, "resume", run)
	now := q.alive()
	if code != 0 || len(now) != 1 || !strings.HasPrefix(out, "submitted job "+now[0]+":") {
		q.t.Fatalf("resume: %d, %s%s; alive are %q", code, out, errs, now)
	}
	if row := q.status(parent, run); row.Job != now[0] || row.State != "PENDING" || row.Ended || row.Next != "" {
		q.t.Errorf("status after resume: %+v", row)
	}
	if code, out, errs := q.run(parent, "resume", run); code != exit.Usage || !strings.Contains(errs, "job "+now[0]+" is still PENDING") ||
		len(q.alive()) != 1 {
		q.t.Errorf("resume beside the resumed job: %d, %s%s", code, out, errs)
	}
}

// resumable returns a run whose first job has ended.
func (q *queue) resumable() (parent, run string) {
	q.t.Helper()
	d := attemptRun(q.t, "")
	parent = filepath.Dir(d.Path())
	q.must(writeScript(d, must(q.t, jobfile.OfRun, d), "", nil))
	q.says("jobs/400", "CANCELLED "+d.ScriptPath())
	q.must(d.SetJobID("400"))
	q.must(d.Append(rundir.Event{Time: time.Now(), Event: rundir.EventSubmit, Detail: "job 400"}))
	return parent, d.Path()
}

func (q *queue) jobFile(parent string) {
	q.t.Helper()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
}

// begin does the first step of a job's batch script.
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

// events returns the events of the given name in a run's ledger.
func (q *queue) events(run, name string) (found []rundir.Event) {
	q.t.Helper()
	for _, e := range q.ledger(run) {
		if e.Event == name {
			found = append(found, e)
		}
	}
	return found
}

func must[A, B any](t *testing.T, f func(A) (B, error), a A) B {
	t.Helper()
	b, err := f(a)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
