package resume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// choosesElements reports whether an argument of sbatch names the elements to run.
func choosesElements(word string) bool {
	return word == "--array" || strings.HasPrefix(word, "--array=") || strings.HasPrefix(word, "-a")
}

// Part names the elements of an array that a resume runs, after Check: "1 of 6 elements: 4". It returns "" if all run, if the words for
// sbatch name them, or if the run is not an array.
func (r *Resumer) Part(run *rundir.Dir, job *jobfile.Job) string {
	left := r.Left(job)
	if index, ok := run.Index(); ok {
		left = []int{index}
	}
	array, err := job.Array()
	if err != nil || array == nil || left == nil || slices.ContainsFunc(r.Words, choosesElements) {
		return ""
	}
	return fmt.Sprintf("%d of %s: %s", len(left), text.Plural(len(array.Indices), "element"), slurm.Array{Indices: left})
}

// AlsoChanges names the elements that the settings of a resume of one element change, too, and that have not ended: "2-5". It returns ""
// if there are none, and for a run that is not an element.
func (r *Resumer) AlsoChanges(ctx context.Context, run *rundir.Dir) (elements string, err error) {
	forAll := func(set string) bool {
		table, _, _ := strings.Cut(jobfile.SetKey(set), ".")
		return jobfile.SetKey(set) != "checkpoint.resume" && table != "slurm" // Slurm has the options of jobs in the queue
	}
	index, isElement := run.Index()
	if !isElement || !slices.ContainsFunc(r.Sets, forAll) {
		return "", nil
	}
	row, err := r.View.Status(ctx, run.Whole())
	return row.OpenElements(index), err
}
