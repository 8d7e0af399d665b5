package rundir

import (
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Submissions are what the ledgers of a run and of its elements tell of its jobs.
type Submissions struct {
	Jobs    []string // that were recorded, or began before Open, the newest last; of an array's elements, the array's
	Open    *Event   // EventSubmitting, where nobody recorded what came of it; nil: there is none
	Lost    string   // the job that began since Open and that nobody has recorded; "": none has
	Dropped bool     // there was such a submission before the newest
	TooLate []string // jobs that must not begin
}

// clockError is how far the clocks of two nodes may be apart.
const clockError = time.Minute

// Submissions reads how a run was submitted.
func (d *Dir) Submissions() (Submissions, error) {
	history, err := d.ownLedger()
	if err != nil {
		return Submissions{}, err
	}
	return d.submissionsIn(history)
}

// RecordJob adds e, which names the job that the run was submitted as. It adds nothing if that job is already the newest in the ledger,
// as the job may have recorded itself when it began. No other process can add a cancel between the look and the addition.
func (d *Dir) RecordJob(e Event) (added bool, err error) {
	err = d.appendIf(e, func(ledger *os.File) bool {
		added = true
		data, err := io.ReadAll(io.NewSectionReader(ledger, 0, maxLedger))
		if err != nil {
			return added // a line too many is better than none
		}
		known, err := d.submissionsIn(parseLedger(data))
		id, _ := e.SubmittedJob()
		added = err != nil || known.Open != nil || known.Newest() != id
		return added
	})
	return added, err
}

// submissionsIn is Submissions for the given events of the run's ledger; it reads the ledgers of the elements itself.
func (d *Dir) submissionsIn(history []Event) (Submissions, error) {
	var s Submissions
	for _, e := range history {
		s.add(e)
	}
	elements, err := d.Elements()
	if err != nil {
		return Submissions{}, err
	}
	for _, element := range elements {
		history, err := element.ownLedger()
		if err != nil {
			return Submissions{}, err
		}
		for _, e := range history {
			if e.Event == EventBegin {
				s.elementBegan(e)
			}
		}
	}
	return s, nil
}

func (s *Submissions) add(e Event) {
	switch e.Event {
	case EventSubmitting:
		s.Dropped = s.Dropped || s.Open != nil && s.Lost == ""
		s.know(s.Lost)
		s.Open, s.Lost = &e, ""
	case EventNotTaken:
		s.Open = nil
	case EventTooLate:
		s.TooLate = append(s.TooLate, e.Job)
	case EventSubmit, EventResume:
		id, ok := e.SubmittedJob()
		if !ok {
			return
		}
		s.know(s.Lost)
		s.know(id)
		s.Open, s.Lost = nil, ""
	case EventBegin:
		s.began(e.Job)
	}
}

// began tells of a job, or an element of it, that began.
func (s *Submissions) began(job string) {
	job, _, _ = strings.Cut(job, "_")
	switch {
	case s.Known(job):
	case s.Open == nil:
		s.know(job)
	default:
		s.Lost = job
	}
}

// elementBegan is began for an event of an element's ledger. A job that began long before the newest submission is an old one, even if
// nobody recorded it.
func (s *Submissions) elementBegan(e Event) {
	job, _, _ := strings.Cut(e.Job, "_")
	if job != "" && !s.Known(job) && s.Open != nil && e.Time.Before(s.Open.Time.Add(-clockError)) {
		s.Jobs = slices.Insert(s.Jobs, 0, job)
		return
	}
	s.began(job)
}

// know makes a job the newest. A cluster that is rebuilt counts from 1 again, so that a number may come twice.
func (s *Submissions) know(job string) {
	if job != "" {
		s.Jobs = append(slices.DeleteFunc(s.Jobs, func(known string) bool { return known == job }), job)
	}
}

// Known tells whether a job, or an element of it, is the run's as is recorded.
func (s Submissions) Known(job string) bool {
	job, _, _ = strings.Cut(job, "_")
	return slices.Contains(s.Jobs, job)
}

// Newest is the newest of Jobs, "" where there is none.
func (s Submissions) Newest() string {
	if len(s.Jobs) == 0 {
		return ""
	}
	return s.Jobs[len(s.Jobs)-1]
}
