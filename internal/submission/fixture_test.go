package submission

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/slurm"
)

// world is a run, and a Slurm that a test plays.
type world struct {
	*fakeslurm.Slurm
	t   *testing.T
	run *rundir.Dir
	log bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{Slurm: fakeslurm.New(t), t: t, run: fakeslurm.Run(t, "")}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) env() Env {
	return Env{
		Hostname: "login1", Now: time.Now, Log: slog.New(slog.NewTextHandler(&w.log, nil)), Slurm: &slurm.Client{Environ: w.Environ(0, 0)},
	}
}

// list is a text's parts: "500 PENDING; 501 RUNNING".
func list(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "; "), func(part string) bool { return part == "" })
}

// queue is what squeue shows of jobs that run a script: "500 PENDING; 501 RUNNING".
func (w *world) queue(script, jobs string) {
	w.t.Helper()
	var out strings.Builder
	for _, job := range list(jobs) {
		id, state, _ := strings.Cut(job, " ")
		fmt.Fprintf(&out, "%s|%s|1|%s|None|1||N/A|N/A|1:00|x\n", script, id, state)
	}
	w.Says("squeue.out", strings.ReplaceAll(out.String(), "|", "\x1f"))
}

// note puts an event into the run's ledger: "submitting", "submitting element 1", "resume job 500", "begin 500" or "too-late 500".
func (w *world) note(text string) {
	w.t.Helper()
	name, rest, _ := strings.Cut(text, " ")
	e := rundir.Event{Time: time.Now(), Event: name}
	switch name {
	case rundir.EventSubmitting:
		e.Detail = rundir.EventResume
		var index int
		if n, _ := fmt.Sscanf(rest, "element %d", &index); n == 1 {
			e.Element = &index
		}
	case rundir.EventSubmit, rundir.EventResume:
		e.Detail = rest
	default:
		e.Job = rest
	}
	w.must(w.run.Append(e))
}

// before is what a run has been through: events of its ledger, and "jobid 500" for the file.
func (w *world) before(texts string) {
	w.t.Helper()
	for _, text := range list(texts) {
		if id, ok := strings.CutPrefix(text, "jobid "); ok {
			w.must(w.run.SetJobID(id))
		} else {
			w.note(text)
		}
	}
}

// left are the events of a run's ledger, with their jobs or details, and the id in its file.
func (w *world) left(run *rundir.Dir) string {
	w.t.Helper()
	history, err := run.Ledger()
	w.must(err)
	var left []string
	for _, e := range history {
		text := e.Event + " " + e.Job
		if _, ok := e.SubmittedJob(); ok {
			text = e.Event + " " + e.Detail
		}
		if e.Element != nil {
			text += fmt.Sprintf(" element %d", *e.Element)
		}
		left = append(left, strings.Join(strings.Fields(text), " "))
	}
	id, err := run.JobID()
	w.must(err)
	if id != "" {
		left = append(left, "jobid "+id)
	}
	return strings.Join(left, "; ")
}

func (w *world) wantLeft(run *rundir.Dir, want string) {
	w.t.Helper()
	if got := w.left(run); got != want {
		w.t.Errorf("%s holds %q, want %q", run.Path(), got, want)
	}
}

// otherClaims are shell lines by which another command takes the claim of the run.
func (w *world) otherClaims() string {
	w.t.Helper()
	const claim = `{"machine":"another","pid":7,"start":1,"host":"login2","doing":"resume","since":"2026-11-24T10:00:00Z","nonce":"x"}`
	w.must(os.WriteFile(filepath.Join(w.Dir, "claim.json"), []byte(claim), 0o600))
	return fmt.Sprintf(`mkdir '%[1]s/claims/9' && cp '%[2]s/claim.json' '%[1]s/claims/9/'`, w.run.Path(), w.Dir)
}

// shell runs lines.
func (w *world) shell(lines string) {
	w.t.Helper()
	if out, err := exec.Command("/bin/sh", "-c", lines).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}
