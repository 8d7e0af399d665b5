package goodput

import (
	"cmp"
	"slices"
	"time"
)

// Summary is where the time of several runs went, in hours of nodes.
type Summary struct {
	Runs       int                `json:"runs"`     // in which some time passed
	QueuedS    float64            `json:"queued_s"` // seconds; no nodes were held
	Starting   float64            `json:"starting"`
	Productive float64            `json:"productive"`
	Saving     float64            `json:"saving"`
	Lost       map[string]float64 `json:"lost"` // by cause
	Unknown    float64            `json:"unknown"`
	Other      float64            `json:"other"`
	Total      float64            `json:"total"`   // less queueing
	Goodput    *float64           `json:"goodput"` // the productive share of Total less Unknown, 0 to 1; nil: nothing is known
}

// Add takes in a run.
func (s *Summary) Add(b Breakdown) {
	s.Runs++
	s.QueuedS += b.Queued.Seconds()
	s.Starting += b.NodeHours(b.Starting)
	s.Productive += b.NodeHours(b.Productive)
	s.Saving += b.NodeHours(b.Saving)
	if s.Lost == nil {
		s.Lost = map[string]float64{} // {} in JSON
	}
	for cause, lost := range b.Lost {
		s.Lost[cause] += b.NodeHours(lost)
	}
	s.Unknown += b.NodeHours(b.Unknown)
	s.Other += b.NodeHours(b.Other)
	s.Total += b.NodeHours(b.Running())
	if known := s.Total - s.Unknown; known > 0 {
		s.Goodput = new(s.Productive / known)
	}
}

// LostHours is the sum of all that was lost.
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

// Add takes in a run of that name.
func (j *Jobs) Add(name string, b Breakdown) {
	if j.byName == nil {
		j.byName = map[string]*Job{}
	}
	if j.byName[name] == nil {
		j.byName[name] = &Job{Name: name}
	}
	j.byName[name].Add(b)
}

// All are the jobs, that with the most hours of nodes first.
func (j *Jobs) All() []Job {
	all := []Job{} // [] in JSON
	for _, job := range j.byName {
		all = append(all, *job)
	}
	slices.SortFunc(all, func(a, b Job) int { return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name)) })
	return all
}

// causes are the keys of a map of what was lost, that of the most first.
func causes[N time.Duration | float64](lost map[string]N) []string {
	names := make([]string, 0, len(lost))
	for name := range lost {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(lost[b], lost[a]), cmp.Compare(a, b)) })
	return names
}

// Causes are the keys of Lost, that of the most hours first.
func (s *Summary) Causes() []string { return causes(s.Lost) }
