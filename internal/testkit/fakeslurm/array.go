package fakeslurm

import (
	"fmt"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// Array is an array of jobs. The test decides what its elements and Slurm do.
type Array struct {
	*Slurm
	Run *rundir.Dir
}

// NewArray creates the run of an array with the given indices, in a Slurm without accounting.
func NewArray(t testing.TB, indices string) *Array {
	t.Helper()
	return NewArrayOf(t, fmt.Sprintf("[slurm]\narray = %q\n", indices))
}

// NewArrayOf is NewArray with lines of the job file that define the elements.
func NewArrayOf(t testing.TB, lines string) *Array {
	t.Helper()
	a := &Array{New(t), Run(t, lines)}
	a.WithoutAccounting()
	return a
}

// Submitted records what submit and resume record: for elements, in their ledgers too.
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

// Ran runs an element in a job, to its end with the given exit code.
func (a *Array) Ran(index int, job string, exit int) *rundir.Dir {
	a.t.Helper()
	element, err := a.Run.Task(index)
	a.Must(err)
	id := fmt.Sprintf("%s_%d", job, a.Run.SlurmIndex(index))
	a.Must(element.SetJobID(id))
	n, err := element.ClaimAttempt()
	a.Must(err)
	a.Must(element.Append(rundir.Event{Time: time.Now(), Event: rundir.EventBegin, Attempt: n, Job: id}))
	a.Must(element.WriteVerdict(rundir.Verdict{Attempt: n, JobID: id, Cause: "crash", Exit: exit, Message: fmt.Sprintf("code %d", exit)}))
	return element
}

// Queue is QueueOf for the array.
func (a *Array) Queue(jobs ...string) {
	a.t.Helper()
	a.QueueOf(a.Run, jobs...)
}
