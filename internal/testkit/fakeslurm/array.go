package fakeslurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// Array is an array whose elements, and Slurm, a test plays.
type Array struct {
	*Slurm
	Run *rundir.Dir
}

// NewArray makes the run of such an array, in a Slurm without accounting.
func NewArray(t testing.TB, indices string) *Array {
	t.Helper()
	a := &Array{New(t), Run(t, fmt.Sprintf("[slurm]\narray = %q\n", indices))}
	a.Must(os.WriteFile(filepath.Join(a.Dir, "sacct"), []byte("#!/bin/sh\necho Slurm accounting storage is disabled >&2\nexit 1\n"), 0o700))
	return a
}

// Must ends the test with an error.
func (a *Array) Must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// Submitted is what submit and resume leave behind: of one element, in its ledger, too.
func (a *Array) Submitted(id string, elements ...*rundir.Dir) {
	a.t.Helper()
	a.Must(a.Run.SetJobID(id))
	all := rundir.Event{Time: time.Now(), Event: rundir.EventResume, Detail: "job " + id}
	for _, run := range elements {
		a.Must(run.Append(all))
		index, _ := run.Index()
		all.Element = &index
	}
	a.Must(a.Run.Append(all))
}

// Ran has an element run in a job, to its end with that exit code.
func (a *Array) Ran(index int, job string, exit int) *rundir.Dir {
	a.t.Helper()
	element, err := a.Run.Task(index)
	a.Must(err)
	id := fmt.Sprintf("%s_%d", job, index)
	a.Must(element.SetJobID(id))
	n, err := element.ClaimAttempt()
	a.Must(err)
	a.Must(element.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: id}))
	a.Must(element.WriteVerdict(rundir.Verdict{Attempt: n, JobID: id, Cause: "crash", Exit: exit, Message: fmt.Sprintf("code %d", exit)}))
	return element
}

// Queue is what squeue shows of its jobs: "12_1 RUNNING".
func (a *Array) Queue(jobs ...string) {
	var out strings.Builder
	for _, job := range jobs {
		id, state, _ := strings.Cut(job, " ")
		fmt.Fprintf(&out, "%s|1|%s|None|1|n1|N/A|N/A|1:00|%s\n", id, state, a.Run.Spec().Name)
	}
	a.Says("squeue.out", strings.ReplaceAll(out.String(), "|", "\x1f"))
}
