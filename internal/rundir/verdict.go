package rundir

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
)

const maxVerdict = 1 << 20

// Verdict is attempts/<n>/verdict.json: how an attempt ended, and why.
type Verdict struct {
	Attempt   int       `json:"attempt"`
	JobID     string    `json:"job_id,omitempty"`
	Cause     string    `json:"cause"`      // "done", "crash", "signal", "cancelled", "agent-lost", "start", "stopped", "timeout"
	FirstRank int       `json:"first_rank"` // the rank that ended first of those that ended badly; -1: none did
	Host      string    `json:"host,omitempty"`
	Exit      int       `json:"exit"` // what run exits with
	Signal    int       `json:"signal,omitempty"`
	Step      int64     `json:"step,omitempty"` // the last one in the metrics
	Requeue   bool      `json:"requeue"`
	Message   string    `json:"message"` // one sentence for people
	Time      time.Time `json:"time"`
}

// WriteVerdict replaces the verdict of v.Attempt durably.
func (d *Dir) WriteVerdict(v Verdict) error {
	if v.Attempt < 1 {
		return fmt.Errorf("write a verdict: attempt %d was never claimed", v.Attempt)
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write the verdict of attempt %d: %w", v.Attempt, err)
	}
	if err := writeBytes(d.verdictPath(v.Attempt), 0o600, append(data, '\n')); err != nil {
		return fmt.Errorf("write the verdict of attempt %d: %w", v.Attempt, err)
	}
	return nil
}

// Verdict reads the verdict of an attempt. An error that is fs.ErrNotExist
// means that there is none (yet).
func (d *Dir) Verdict(attempt int) (Verdict, error) {
	path := d.verdictPath(attempt)
	data, err := readFile(path, maxVerdict)
	if err != nil {
		return Verdict{}, fmt.Errorf("read the verdict of attempt %d: %w", attempt, err)
	}
	var v Verdict
	if err := json.Unmarshal(data, &v); err != nil {
		return Verdict{}, fmt.Errorf("read the verdict of attempt %d: %s: %w", attempt, path, err)
	}
	return v, nil
}

func (d *Dir) verdictPath(attempt int) string {
	return filepath.Join(d.attemptPath(attempt), verdictName)
}
