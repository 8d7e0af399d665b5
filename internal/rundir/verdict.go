package rundir

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"ddpbatch/internal/text"
)

const (
	maxVerdict = 1 << 20
	maxText    = 16 << 10 // bytes kept of a verdict's texts if it is too long
)

// Verdict is attempts/<n>/verdict.json: how and why an attempt ended.
type Verdict struct {
	Attempt   int    `json:"attempt"`
	JobID     string `json:"job_id,omitempty"`
	Cause     string `json:"cause"`      // a recovery.Cause: "done", "crash", "preempt", ...
	FirstRank int    `json:"first_rank"` // the rank that failed first; -1 if none did
	Host      string `json:"host,omitempty"`
	Exit      int    `json:"exit"` // the exit code of run
	Signal    int    `json:"signal,omitempty"`
	Step      int64  `json:"step,omitempty"` // the last one in the metrics
	Requeue   bool   `json:"requeue"`
	Message   string `json:"message"` // one sentence for people

	// the first rank's own error: the last line of its exception, or another message; one line
	Error  string `json:"error,omitempty"`
	Class  string `json:"class,omitempty"`  // a blame.Class, if the table of causes knows the error: "program", "infrastructure"
	Advice string `json:"advice,omitempty"` // what the user can do, one line
	Final  bool   `json:"final,omitempty"`  // it will fail again until the user changes something
	Trace  string `json:"trace,omitempty"`  // a digest of the traceback, equal for equal ones; empty if there is none that may recur

	Round  int       `json:"round,omitempty"`  // of the attempt within its job, from 0
	Ranks  []RankEnd `json:"ranks,omitempty"`  // how the failed ranks ended, first_rank first
	Report string    `json:"report,omitempty"` // describes the failure for people, in a few lines
	OOM    bool      `json:"oom,omitempty"`    // memory ran out
	Saved  bool      `json:"saved,omitempty"`  // the ranks saved before they stopped; exit code 75 alone only asks for a restart
	Nodes  []string  `json:"nodes,omitempty"`  // nodes that failed
	Drain  bool      `json:"drain,omitempty"`  // Nodes have not failed: Slurm drains them, and so the workers ended
	// nodes that failed a check before the workers were started; they took no part in the attempt
	Unfit   []string  `json:"unfit,omitempty"`
	Restart bool      `json:"restart,omitempty"` // another round followed in the same job
	Time    time.Time `json:"time"`

	Unstarted bool    `json:"unstarted,omitempty"` // the job was told to end before its workers were started
	WarnedS   float64 `json:"warned_s,omitempty"`  // seconds from the warning until all workers had ended; 0: no warning
	LeadS     float64 `json:"lead_s,omitempty"`    // seconds before the job's end at which the warning was due; 0: the end was not known
}

// RankEnd says how a rank failed: with an exit code, or by a signal.
type RankEnd struct {
	Rank     int    `json:"rank"`
	Host     string `json:"host"`
	Exit     int    `json:"exit,omitempty"`   // 0: killed by a signal
	Signal   int    `json:"signal,omitempty"` // 0: it exited
	Followed bool   `json:"followed"`         // it ended because another did
}

// WriteVerdict durably replaces the verdict of v.Attempt. If it is too long to be read back, it is shortened: first its texts for people,
// then its lists of ranks and nodes.
func (d *Dir) WriteVerdict(v Verdict) error {
	if v.Attempt < 1 {
		return fmt.Errorf("write a verdict: attempt %d was never claimed", v.Attempt)
	}
	data, err := v.encode()
	if err == nil {
		err = writeBytes(d.verdictPath(v.Attempt), 0o600, data)
	}
	if err != nil {
		return fmt.Errorf("write the verdict of attempt %d: %w", v.Attempt, err)
	}
	return nil
}

// encode returns v in JSON, of at most maxVerdict bytes.
func (v Verdict) encode() ([]byte, error) {
	for {
		data, err := json.MarshalIndent(v, "", "  ")
		switch {
		case err != nil || len(data) < maxVerdict:
			return append(data, '\n'), err
		case len(v.Report) > maxText:
			v.Report = text.Cut(v.Report, max(len(v.Report)/2, maxText))
		case len(v.Message) > maxText:
			v.Message = text.Cut(v.Message, max(len(v.Message)/2, maxText))
		case len(v.Error) > maxText:
			v.Error = text.Cut(v.Error, max(len(v.Error)/2, maxText))
		case len(v.Advice) > maxText:
			v.Advice = text.Cut(v.Advice, max(len(v.Advice)/2, maxText))
		case len(v.Ranks) > 1: // the rank that failed first is the first
			v.Ranks = v.Ranks[:len(v.Ranks)/2]
		case len(v.Nodes) > 1:
			v.Nodes = v.Nodes[:len(v.Nodes)/2]
		default:
			return nil, fmt.Errorf("it takes %d bytes, more than the %d that can be read back", len(data), maxVerdict)
		}
	}
}

// Verdict reads the verdict of an attempt. The error is fs.ErrNotExist if there is none (yet), and a *json.SyntaxError if a crash cut it
// short.
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
