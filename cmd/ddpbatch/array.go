package main

import (
	"slices"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/simulate"
)

// runArray is a run that is several: each element has a directory of its own once it has begun.
type runArray struct {
	indices []int // of the elements that the job asks for; none where only Slurm can tell
	begun   map[int]*rundir.Dir
}

// arrayIn is the array that a run's job asks for; nil where it asks for none, and for one element.
func arrayIn(run *rundir.Dir) (*runArray, error) {
	asks, indices, err := arrayAsked(run)
	if err != nil || !asks {
		return nil, err
	}
	elements, err := run.Elements()
	if err != nil {
		return nil, err
	}
	a := &runArray{indices: indices, begun: map[int]*rundir.Dir{}}
	for _, element := range elements {
		index, _ := element.Index()
		a.begun[index] = element
	}
	return a, nil
}

// isArray tells whether a run is several, with a log each.
func isArray(run *rundir.Dir) bool {
	asks, _, err := arrayAsked(run)
	return asks && err == nil
}

// arrayAsked tells whether a run's job asks for an array, and for which elements.
func arrayAsked(run *rundir.Dir) (asks bool, indices []int, err error) {
	kind := run.Spec().Kind
	if _, isElement := run.Index(); isElement || kind != "slurm" && kind != "simulate" {
		return false, nil, nil
	}
	job, err := jobOf(run)
	if err != nil {
		return false, nil, err
	}
	if _, asks = job.Slurm.Get("array"); !asks || slices.Contains(job.Slurm.Skip, "array") {
		return false, nil, nil
	}
	array, err := simulate.ArrayOf(job)
	if err != nil && kind == "slurm" { // a site may allow more elements than simulate does
		return true, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	return true, array.Indices, nil
}

// all are the indices of the elements that the job asks for, and of those that have begun at any time.
func (a *runArray) all() []int {
	all := slices.Clone(a.indices)
	for index := range a.begun {
		all = append(all, index)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
