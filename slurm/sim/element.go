package sim

import (
	"slices"
	"strconv"

	"ddpbatch/slurm"
)

// Element is one element of an array, as the environment describes it to its job.
type Element struct {
	JobID int // the array's
	Index int
	Array slurm.Array
}

// Elements returns the elements of an array that has the given job id.
func Elements(a slurm.Array, jobID int) []Element {
	elements := make([]Element, len(a.Indices))
	for i, index := range a.Indices {
		elements[i] = Element{JobID: jobID, Index: index, Array: a}
	}
	return elements
}

// OwnJobID returns the id of the element's own job. The last element has the array's id (seen in Slurm 22.05), the others have the ids
// after it.
func (e Element) OwnJobID() int {
	i := slices.Index(e.Array.Indices, e.Index)
	if i == len(e.Array.Indices)-1 {
		return e.JobID
	}
	return e.JobID + 1 + i
}

// environ returns the variables that identify the element.
func (e Element) environ() []string {
	indices := e.Array.Indices
	return []string{
		"SLURM_ARRAY_JOB_ID=" + strconv.Itoa(e.JobID),
		"SLURM_ARRAY_TASK_ID=" + strconv.Itoa(e.Index),
		"SLURM_ARRAY_TASK_COUNT=" + strconv.Itoa(len(indices)),
		"SLURM_ARRAY_TASK_MIN=" + strconv.Itoa(indices[0]),
		"SLURM_ARRAY_TASK_MAX=" + strconv.Itoa(indices[len(indices)-1]),
		"SLURM_ARRAY_TASK_STEP=" + strconv.Itoa(commonStep(indices)),
	}
}

// commonStep returns the common distance of adjacent indices, or 1 if there is none.
func commonStep(indices []int) int {
	if len(indices) < 2 {
		return 1
	}
	by := indices[1] - indices[0]
	for i := range indices[1:] {
		if indices[i+1]-indices[i] != by {
			return 1
		}
	}
	return by
}
