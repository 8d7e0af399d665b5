package goodput

import (
	"cmp"
	"slices"
	"time"
)

// Summary says where the time of several runs went, in node-hours.
type Summary struct {
	Runs       int                `json:"runs"`     // the number of runs in which some time passed
	QueuedS    float64            `json:"queued_s"` // in seconds, as the runs did not hold nodes
	Starting   float64            `json:"starting"`
	Productive float64            `json:"productive"`
	Saving     float64            `json:"saving"`
	Lost       map[string]float64 `json:"lost"` // by cause
	Unknown    float64            `json:"unknown"`
	Other      float64            `json:"other"`
	Total      float64            `json:"total"`   // without queuing
	Goodput    *float64           `json:"goodput"` // the productive share of Total minus Unknown, 0 to 1; nil: all is Unknown
}

// Add adds a run.
func (s *Summary) Add(b Breakdown) {
	s.Runs++
	s.QueuedS += b.Queued.Seconds()
	s.Starting += b.NodeHours(func(b Breakdown) time.Duration { return b.Starting })
	s.Productive += b.NodeHours(func(b Breakdown) time.Duration { return b.Productive })
	s.Saving += b.NodeHours(func(b Breakdown) time.Duration { return b.Saving })
	if s.Lost == nil {
		s.Lost = map[string]float64{} // {} in JSON
	}
	for cause := range b.Lost {
		s.Lost[cause] += b.NodeHours(func(b Breakdown) time.Duration { return b.Lost[cause] })
	}
	s.Unknown += b.NodeHours(func(b Breakdown) time.Duration { return b.Unknown })
	s.Other += b.NodeHours(func(b Breakdown) time.Duration { return b.Other })
	s.Total += b.NodeHours(Breakdown.Running)
	if known := s.Total - s.Unknown; known > 0 {
		s.Goodput = new(s.Productive / known)
	}
}

// LostHours returns the sum of the lost node-hours.
func (s *Summary) LostHours() (sum float64) {
	for _, lost := range s.Lost {
		sum += lost
	}
	return sum
}

// Job is the summary of all runs of one name.
type Job struct {
	Name string `json:"name"`
	Summary
}

// Jobs collects runs by their names.
type Jobs struct{ byName map[string]*Job }

// Add adds a run of the given name.
func (j *Jobs) Add(name string, b Breakdown) {
	if j.byName == nil {
		j.byName = map[string]*Job{}
	}
	if j.byName[name] == nil {
		j.byName[name] = &Job{Name: name}
	}
	j.byName[name].Add(b)
}

// All returns the jobs, the one with the most node-hours first.
func (j *Jobs) All() []Job {
	all := []Job{} // [] in JSON
	for _, job := range j.byName {
		all = append(all, *job)
	}
	slices.SortFunc(all, func(a, b Job) int { return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name)) })
	return all
}

// causes returns the keys of lost, the one with the largest value first.
func causes[N time.Duration | float64](lost map[string]N) []string {
	names := make([]string, 0, len(lost))
	for name := range lost {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(lost[b], lost[a]), cmp.Compare(a, b)) })
	return names
}

// Causes returns the keys of Lost, the one with the most hours first.
func (s *Summary) Causes() []string { return causes(s.Lost) }
