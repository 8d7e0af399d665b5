package runview

import (
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
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
	job, err := jobfile.OfRun(run)
	if err != nil {
		return false, nil, err
	}
	list, asks := job.Slurm.Get("array")
	if !asks || slices.Contains(job.Slurm.Skip, "array") {
		return false, nil, nil
	}
	array, err := slurm.ParseArray(list)
	if err != nil && kind == "slurm" { // a site may allow higher indices than ParseArray takes
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

// arrayJobs tells which job each element of an array is part of: the newest of the whole array, or one in which it was resumed alone since.
type arrayJobs struct {
	whole   string
	alone   map[int]string
	known   []string // that were submitted, oldest first; none of what is simulated
	indices []int    // as in Array
}

func (a *runArray) jobs(run *rundir.Dir) (arrayJobs, error) {
	id, err := run.JobID()
	jobs := arrayJobs{whole: id, alone: map[int]string{}, indices: a.indices}
	if err != nil || run.Spec().Kind != "slurm" {
		return jobs, err
	}
	jobs.known = submissions(run)
	if !slices.Contains(jobs.known, id) { // its ledger could not be written
		jobs.known = append(jobs.known, id)
	}
	var ofOne []string
	for index, element := range a.begun {
		resumes := submissions(element)
		ofOne = append(ofOne, resumes...)
		if len(resumes) > 0 {
			jobs.alone[index] = resumes[len(resumes)-1]
		}
	}
	for _, id := range jobs.known {
		if !slices.Contains(ofOne, id) {
			jobs.whole = id
		}
	}
	for index, id := range jobs.alone {
		if slices.Index(jobs.known, id) < slices.Index(jobs.known, jobs.whole) {
			delete(jobs.alone, index)
		}
	}
	return jobs, nil
}

// submissions are the jobs that a run or an element was submitted as, oldest first. A ledger that cannot be read tells of none.
func submissions(run *rundir.Dir) (ids []string) {
	history, _ := run.Ledger()
	for _, event := range history {
		if id, ok := event.SubmittedJob(); ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// of is the job of an element; recorded is that in which it has begun last, "" where it never has.
func (j arrayJobs) of(index int, recorded string) string {
	array, _, _ := strings.Cut(recorded, "_")
	id := j.whole
	switch alone, isAlone := j.alone[index]; {
	case isAlone:
		id = alone
	case recorded != "" && !slices.Contains(j.known, array): // simulated, or submitted by hand or just now
		return recorded
	case recorded != "" && len(j.indices) > 0 && !slices.Contains(j.indices, index): // a resume has left it out
		return recorded
	}
	return fmt.Sprintf("%s_%d", id, index)
}

// ids are the jobs that Slurm is asked about.
func (j arrayJobs) ids() []string {
	ids := []string{j.whole}
	for _, id := range j.alone {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// aloneIn is the element that was resumed alone as the job id.
func (j arrayJobs) aloneIn(id string) (index int, ok bool) {
	for index, alone := range j.alone {
		if alone == id {
			return index, true
		}
	}
	return 0, false
}

// NewestJob is the newest job of a run. An element's may wait, so that it has not begun yet.
func NewestJob(run *rundir.Dir) (string, error) {
	recorded, err := run.JobID()
	if err != nil || run.Spec().Kind != "slurm" {
		return recorded, err
	}
	index, isElement := run.Index()
	if !isElement {
		return begunSince(run, recorded), nil
	}
	whole := run.Array()
	newest, err := whole.JobID()
	if array, _, _ := strings.Cut(recorded, "_"); err != nil || array == newest {
		return recorded, err
	}
	array, err := arrayIn(whole)
	if err != nil || array == nil {
		return recorded, err
	}
	jobs, err := array.jobs(whole)
	return jobs.of(index, recorded), err
}

// begunSince is the job of a run that has begun since the recorded one was submitted, unnoticed: by hand, or by a command that was killed.
// Else it is the recorded one.
func begunSince(run *rundir.Dir, recorded string) string {
	if isArray(run) {
		return recorded
	}
	known, err := run.Submissions()
	newest := known.Newest()
	if err != nil || newest == "" || recorded != "" && !known.Known(recorded) { // its ledger could not be read, or not be written
		return recorded
	}
	return newest
}

// wholeJob is the newest job of a whole array.
func wholeJob(run *rundir.Dir) (string, error) {
	array, err := arrayIn(run)
	if err != nil {
		return "", err
	}
	jobs, err := array.jobs(run)
	return jobs.whole, err
}
