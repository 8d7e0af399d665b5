package rundir

import (
	"fmt"
	"strconv"
	"strings"
)

// SlurmIndex returns the index that Slurm uses for an element of the run's array, in the array job that it is part of. The elements of a
// sweep that is submitted as several arrays are numbered consecutively, while each array job begins at 0 (Spec.ArraySize).
func (d *Dir) SlurmIndex(element int) int {
	if size := d.Spec().ArraySize; size > 0 {
		return element % size
	}
	return element
}

// Offsets returns the first element of each of the run's array jobs, if it is submitted as several, and otherwise nil.
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

// ElementOf returns the element of the run's array that one of Slurm's job IDs, such as 12_3, means. offsets is the result of Offsets.
func ElementOf(id string, offsets map[string]int) (int, error) {
	job, number, _ := strings.Cut(id, "_")
	index, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("job id %q: %w", id, err)
	}
	return offsets[job] + index, nil
}
