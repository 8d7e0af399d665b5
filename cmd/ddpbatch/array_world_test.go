package main

import (
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/testkit/fakeslurm"
)

// arrayWorld is an array whose elements, and Slurm, a test plays.
type arrayWorld struct {
	*pretendSlurm
	array *fakeslurm.Array
	run   *rundir.Dir
}

func newArrayWorld(t *testing.T, indices string) *arrayWorld {
	a := fakeslurm.NewArray(t, indices)
	return &arrayWorld{&pretendSlurm{a.Slurm, t, a.Dir}, a, a.Run}
}

func (w *arrayWorld) must(err error) { w.t.Helper(); w.array.Must(err) }

func (w *arrayWorld) submitted(id string, elements ...*rundir.Dir) {
	w.t.Helper()
	w.array.Submitted(id, elements...)
}

func (w *arrayWorld) ran(index int, job string, exit int) *rundir.Dir {
	w.t.Helper()
	return w.array.Ran(index, job, exit)
}

func (w *arrayWorld) slurm(jobs ...string) { w.array.Queue(jobs...) }

func (w *arrayWorld) status(state string, exit int, message string) runview.RunStatus {
	w.t.Helper()
	e, _, _ := w.env(0, 0)
	row, err := e.viewer().Status(w.t.Context(), w.run)
	w.must(err)
	got := -1
	if row.Exit != nil {
		got = *row.Exit
	}
	if row.State != state || got != exit || row.Message != message {
		w.t.Errorf("status is %s, exit code %d, %q; want %s, %d, %q", row.State, got, row.Message, state, exit, message)
	}
	return row
}

// A resume of one element says in the array's ledger which one it is of.
func TestResumeElement(t *testing.T) {
	w := newArrayWorld(t, "1,2")
	w.submitted("12")
	one := w.ran(1, "12", 3)
	w.slurm("12_1 FAILED", "12_2 CANCELLED")
	w.says("sbatch.out", "13\n")
	e, _, _ := w.env(0, 0)
	w.must(runResume(t.Context(), e, one, resumeOptions{}))
	history, err := w.run.Ledger()
	w.must(err)
	last := history[len(history)-1]
	if last.Event != rundir.EventResume || last.Detail != "job 13" || last.Element == nil || *last.Element != 1 {
		t.Errorf("the array's ledger ends with %+v; want the resume of element 1", last)
	}
}
