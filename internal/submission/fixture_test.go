package submission

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/slurm"
)

// world is a run and a simulated Slurm.
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

func (w *world) env() Env {
	return Env{
		Hostname: "login1", Now: time.Now, Log: slog.New(slog.NewTextHandler(&w.log, nil)), Slurm: &slurm.Client{Environ: w.Environ(0, 0)},
	}
}

// list splits a text into its parts: "500 PENDING; 501 RUNNING".
func list(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "; "), func(part string) bool { return part == "" })
}

// note adds an event to the run's ledger: "submitting", "submitting element 1", "resume job 500", "begin 500" or "too-late 500".
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
	w.Must(w.run.Append(e))
}

// before sets up the history of a run: the events in its ledger, and "jobid 500" for the file.
func (w *world) before(texts string) {
	w.t.Helper()
	for _, text := range list(texts) {
		if id, ok := strings.CutPrefix(text, "jobid "); ok {
			w.Must(w.run.SetJobID(id))
		} else {
			w.note(text)
		}
	}
}

// left returns the events in a run's ledger, with their jobs or details, and the job id in its file.
func (w *world) left(run *rundir.Dir) string {
	w.t.Helper()
	history, err := run.Ledger()
	w.Must(err)
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
	w.Must(err)
	if id != "" {
		if cluster := run.Cluster(); cluster != "" {
			id += " on " + cluster
		}
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
