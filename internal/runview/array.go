package runview

import (
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
)

// runArray describes a run that is an array: each element has its own directory once it has begun.
type runArray struct {
	indices []int // of the elements that the job asks for; empty if only Slurm knows them
	begun   map[int]*rundir.Dir
}

// arrayIn returns the array that a run's job asks for. It returns nil if the job asks for none, and for an element.
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

// isArray reports whether a run is an array, whose elements have a log each.
func isArray(run *rundir.Dir) bool {
	asks, _, err := arrayAsked(run)
	return asks && err == nil
}

// IsArray reports whether a run is an array, whose elements have their own directories. It returns false for an element.
func (v *Viewer) IsArray(run *rundir.Dir) bool { return isArray(run) }

// arrayAsked reports whether a run's job asks for an array, and for which elements.
func arrayAsked(run *rundir.Dir) (asks bool, indices []int, err error) {
	kind := run.Spec().Kind
	if _, isElement := run.Index(); isElement || kind != "slurm" && kind != "simulate" {
		return false, nil, nil
	}
	job, err := jobfile.OfRun(run)
	if err != nil {
		return false, nil, err
	}
	array, err := job.Array()
	switch {
	case array == nil:
		return false, nil, nil
	case err != nil && kind == "slurm": // a site may permit higher indices than ParseArray accepts
		return true, nil, nil
	case err != nil:
		return false, nil, err
	}
	return true, array.Indices, nil
}

// all returns the indices of the elements that the job asks for, and of those that have ever begun.
func (a *runArray) all() []int {
	all := slices.Clone(a.indices)
	for index := range a.begun {
		all = append(all, index)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// arrayJobs says which job each element of an array is part of: the newest of the whole array, or one in which some elements were resumed
// since.
type arrayJobs struct {
	whole   string
	some    map[int]string // by index, of elements that were resumed without the others
	known   []string       // the submitted jobs, oldest first; none for a simulated run
	indices []int          // as in runArray
	run     *rundir.Dir    // the whole run
}

func (a *runArray) jobs(run *rundir.Dir) (arrayJobs, error) {
	id, err := run.JobID()
	jobs := arrayJobs{whole: id, some: map[int]string{}, indices: a.indices, run: run}
	if err != nil || run.Spec().Kind != "slurm" {
		return jobs, err
	}
	submitted := submissions(run)
	for _, e := range submitted {
		known, _ := e.SubmittedJob()
		jobs.known = append(jobs.known, known)
	}
	if !slices.Contains(jobs.known, id) { // the ledger could not be written
		jobs.known = append(jobs.known, id)
	}
	var ofSome []string
	for _, e := range submitted {
		known, _ := e.SubmittedJob()
		for i, index := range e.Indices() {
			if jobs.some[index] = known; i == 0 {
				ofSome = append(ofSome, known)
			}
		}
	}
	for index, element := range a.begun {
		for _, e := range submissions(element) {
			known, _ := e.SubmittedJob()
			ofSome = append(ofSome, known)
			if slices.Index(jobs.known, known) >= slices.Index(jobs.known, jobs.some[index]) {
				jobs.some[index] = known
			}
		}
	}
	if run.Spec().ArraySize > 0 { // each job has only some elements, and none is of the whole array
		jobs.whole = jobs.known[0]
	}
	for _, id := range jobs.known {
		if !slices.Contains(ofSome, id) {
			jobs.whole = id
		}
	}
	for index, id := range jobs.some {
		if slices.Index(jobs.known, id) < slices.Index(jobs.known, jobs.whole) {
			delete(jobs.some, index)
		}
	}
	return jobs, nil
}

// submissions returns the events that record the jobs as which a run or an element was submitted, oldest first, with only the first event
// of each job. If the ledger cannot be read it returns none.
func submissions(run *rundir.Dir) (events []rundir.Event) {
	history, _ := run.Ledger()
	known := map[string]bool{}
	for _, event := range history {
		if id, ok := event.SubmittedJob(); ok && !known[id] {
			known[id] = true
			events = append(events, event)
		}
	}
	return events
}

// of returns the job of an element. recorded is the job in which the element last began, or "" if it never has.
func (j arrayJobs) of(index int, recorded string) string {
	array, _, _ := strings.Cut(recorded, "_")
	id := j.whole
	resumed, isSome := j.some[index]
	switch {
	case isSome:
		id = resumed
	case recorded != "" && !slices.Contains(j.known, array): // simulated, or submitted by hand or just now
		return recorded
	case !isSome && j.run.Spec().ArraySize > 0: // its array could not be submitted
		return recorded
	case recorded != "" && len(j.indices) > 0 && !slices.Contains(j.indices, index): // a resume has left it out
		return recorded
	}
	return fmt.Sprintf("%s_%d", id, j.run.SlurmIndex(index))
}

// ids returns the jobs to ask Slurm about.
func (j arrayJobs) ids() []string {
	ids := []string{j.whole}
	for _, id := range j.some {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// resumedIn returns the elements that were resumed as the job id without the others, or none if id is a job of the whole array.
func (j arrayJobs) resumedIn(id string) (indices []int) {
	for index, resumed := range j.some {
		if resumed == id {
			indices = append(indices, index)
		}
	}
	return indices
}

// resumedSince returns the jobs as which some elements were resumed after the job id of the whole array, oldest first. It returns none for
// any other job, and for a sweep that consists of several arrays.
func (j arrayJobs) resumedSince(id string) (jobs []string) {
	if id != j.whole || j.run.Spec().ArraySize > 0 {
		return nil
	}
	for _, known := range j.known {
		if len(j.resumedIn(known)) > 0 {
			jobs = append(jobs, known)
		}
	}
	return jobs
}

// ArrayJob returns the newest job of a whole array, while Job may be one as which only some elements were resumed. For any other run, and
// for a sweep that consists of several arrays, it is Job.
func (row *RunStatus) ArrayJob() string {
	if row.array == nil || row.run.Spec().ArraySize > 0 {
		return row.Job
	}
	return row.array.whole
}

// NewestJob returns the newest job of a run. An element's newest job may still be pending.
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

// begunSince returns the job of a run that has begun since the recorded one was submitted without being recorded: it was submitted by hand,
// or by a command that was killed. If there is none, begunSince returns recorded.
func begunSince(run *rundir.Dir, recorded string) string {
	if isArray(run) {
		return recorded
	}
	known, err := run.Submissions()
	newest := known.Current()
	if err != nil || newest == "" || recorded != "" && !known.Known(recorded) { // the ledger could not be read or written
		return recorded
	}
	return newest
}

// wholeJob returns the newest job of a whole array.
func wholeJob(run *rundir.Dir) (string, error) {
	array, err := arrayIn(run)
	if err != nil {
		return "", err
	}
	jobs, err := array.jobs(run)
	return jobs.whole, err
}
