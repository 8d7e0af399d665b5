package rundir

import (
	"fmt"
	"strconv"
	"strings"
)

// SlurmIndex is the index by which Slurm knows an element of the run's array, in the array that it is part of: the elements of a sweep that
// is submitted as several arrays are counted through, while each array of Slurm's begins at 0 (Spec.ArraySize).
func (d *Dir) SlurmIndex(element int) int {
	if size := d.Spec().ArraySize; size > 0 {
		return element % size
	}
	return element
}

// Offsets are the elements that the run's array jobs begin at, where it is submitted as several; nil where it is not.
func (d *Dir) Offsets() (map[string]int, error) {
	size := d.Spec().ArraySize
	if size <= 0 {
		return nil, nil
	}
	history, err := d.Whole().ownLedger()
	if err != nil {
		return nil, err
	}
	offsets := map[string]int{}
	for _, e := range history {
		if id, ok := e.SubmittedJob(); ok {
			if indices := e.Indices(); len(indices) > 0 {
				offsets[id] = indices[0] / size * size
			}
		}
	}
	return offsets, nil
}

// ElementOf is the element of the run's array that a job id of Slurm's means, such as 12_3; offsets are what Offsets returns.
func ElementOf(id string, offsets map[string]int) (int, error) {
	job, number, _ := strings.Cut(id, "_")
	index, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("job id %q: %w", id, err)
	}
	return offsets[job] + index, nil
}
