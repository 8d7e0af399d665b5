package goodput

import (
	"errors"
	"fmt"
	"time"

	"ddpbatch/internal/rundir"
)

// Survey says where the time of many runs went, and which nodes failed meanwhile.
type Survey struct {
	Since *time.Time     `json:"since"` // nil: all time counts
	Total Summary        `json:"total"`
	Jobs  []Job          `json:"jobs"`  // one for each name, the one with the most node-hours first
	Nodes []NodeFailures `json:"nodes"` // the nodes that failed, the one with the highest score first
}

// Surveyor makes a Survey.
type Surveyor struct {
	From, Now time.Time // if From is zero, all time counts
	// Ended reports which of the runs in open have ended although their ledgers do not have an end.
	Ended func(open []*rundir.Dir) []bool
}

// Survey returns the survey of runs. The error names runs that could not be read; the others count.
func (s Surveyor) Survey(runs []*rundir.Dir) (Survey, error) {
	var found Survey
	if !s.From.IsZero() {
		found.Since = &s.From
	}
	var errs []error
	failed := func(run *rundir.Dir, err error) {
		errs = append(errs, fmt.Errorf("%s is not counted: %w", run.Path(), err))
	}
	var jobs Jobs
	take := func(run *rundir.Dir, b Breakdown) {
		if b.Total() > 0 {
			found.Total.Add(b)
			jobs.Add(run.Spec().Name, b)
		}
	}
	nodes := Nodes{From: s.From}
	var open []*rundir.Dir
	var sums []Breakdown
	for _, run := range runs {
		b, err := new(Accounts).between(run, false, s.From, s.Now)
		if err == nil {
			err = nodes.AddAll(run)
		}
		switch {
		case err != nil:
			failed(run, err)
		case b.Open:
			open, sums = append(open, run), append(sums, b)
		default:
			take(run, b)
		}
	}
	if len(open) > 0 {
		for i, ended := range s.Ended(open) {
			if ended {
				var err error
				if sums[i], err = new(Accounts).between(open[i], true, s.From, s.Now); err != nil {
					failed(open[i], err)
					continue
				}
			}
			take(open[i], sums[i])
		}
	}
	found.Jobs, found.Nodes = jobs.All(), nodes.Failed(s.Now)
	return found, errors.Join(errs...)
}
