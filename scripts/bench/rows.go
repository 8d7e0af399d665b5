package main

import "time"

// rowReader reads a launch's output, line by line as it comes.
type rowReader struct {
	parse   func(string) (sample, bool)
	started time.Time
	ended   chan struct{} // told of the line "end"; has room for one
	samples []sample      // not to be read before the launch has ended
	first   time.Duration // when the first row came
}

func (r *rowReader) hear(line string) {
	if s, ok := r.parse(line); ok {
		if len(r.samples) == 0 {
			r.first = time.Since(r.started)
		}
		r.samples = append(r.samples, s)
	} else if line == "end" {
		select {
		case r.ended <- struct{}{}:
		default: // told already
		}
	}
}

// rows are those that came. Start-up is timed from here, for all alike: from the launch to the row that rank 0 prints
// when all ranks have met.
func (r *rowReader) rows(s setting) []sample {
	if s.Collective == "startup" && len(r.samples) > 0 {
		return []sample{{us: float64(r.first.Microseconds()), wrong: r.samples[0].wrong}}
	}
	return r.samples
}
