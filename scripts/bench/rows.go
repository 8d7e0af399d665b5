package main

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// rowWriter reads a launch's output as it comes.
type rowWriter struct {
	parse   func(string) (sample, bool)
	started time.Time
	ended   chan struct{} // told of the line "end"; has room for one
	mu      sync.Mutex
	rest    []byte // of a line without an end
	samples []sample
	first   time.Duration // when the first row came
}

func (w *rowWriter) Write(p []byte) (int, error) {
	now := time.Since(w.started)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		line, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		w.rest = rest
		text := strings.TrimSpace(string(line))
		if s, ok := w.parse(text); ok {
			if len(w.samples) == 0 {
				w.first = now
			}
			w.samples = append(w.samples, s)
		} else if text == "end" {
			select {
			case w.ended <- struct{}{}:
			default: // told already
			}
		}
	}
}

// rows are those that came. Start-up is timed from here, for all alike: from the launch to the row that rank 0 prints
// when all ranks have met.
func (w *rowWriter) rows(s setting) []sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Collective == "startup" && len(w.samples) > 0 {
		return []sample{{us: float64(w.first.Microseconds()), wrong: w.samples[0].wrong}}
	}
	return w.samples
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
