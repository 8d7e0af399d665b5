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
	maxText    = 16 << 10 // bytes that a verdict's texts keep where it is too long
)

// Verdict is attempts/<n>/verdict.json: how an attempt ended, and why.
type Verdict struct {
	Attempt   int    `json:"attempt"`
	JobID     string `json:"job_id,omitempty"`
	Cause     string `json:"cause"`      // a recovery.Cause: "done", "crash", "preempt", ...
	FirstRank int    `json:"first_rank"` // the rank that ended first of those that ended badly; -1: none did
	Host      string `json:"host,omitempty"`
	Exit      int    `json:"exit"` // what run exits with
	Signal    int    `json:"signal,omitempty"`
	Step      int64  `json:"step,omitempty"` // the last one in the metrics
	Requeue   bool   `json:"requeue"`
	Message   string `json:"message"` // one sentence for people

	// the first rank's own: the last line of its exception, or what else it said was wrong; one line
	Error  string `json:"error,omitempty"`
	Class  string `json:"class,omitempty"`  // a blame.Class, where the table of causes knows the error: "program", "infrastructure"
	Advice string `json:"advice,omitempty"` // what a person can do, one line
	Final  bool   `json:"final,omitempty"`  // the same comes again until a person changes something
	Trace  string `json:"trace,omitempty"`  // a digest of the traceback: equal ones have the same; empty: there is none that may come again

	Round  int       `json:"round,omitempty"`  // of the attempt within its job, from 0
	Ranks  []RankEnd `json:"ranks,omitempty"`  // how the ranks that ended badly did, first_rank first
	Report string    `json:"report,omitempty"` // the failure, told to a person in some lines
	OOM    bool      `json:"oom,omitempty"`    // memory ran out
	Saved  bool      `json:"saved,omitempty"`  // the ranks saved before they stopped; exit 75 alone is a wish to be started again
	Nodes  []string  `json:"nodes,omitempty"`  // that failed
	Drain  bool      `json:"drain,omitempty"`  // Nodes have not failed: Slurm drains them, and the workers ended because of that
	// nodes that failed a check before the workers were started; they had no part in the attempt
	Unfit   []string  `json:"unfit,omitempty"`
	Restart bool      `json:"restart,omitempty"` // another round followed in the same job
	Time    time.Time `json:"time"`

	Unstarted bool    `json:"unstarted,omitempty"` // the job was told to end before its workers were started
	WarnedS   float64 `json:"warned_s,omitempty"`  // seconds from the warning until all workers had ended; 0: they were not warned
	LeadS     float64 `json:"lead_s,omitempty"`    // seconds before the job's end at which they were to be warned; 0: no end was known
}

// RankEnd says how a rank failed: with an exit code, or by a signal.
type RankEnd struct {
	Rank     int    `json:"rank"`
	Host     string `json:"host"`
	Exit     int    `json:"exit,omitempty"`   // 0: a signal killed it
	Signal   int    `json:"signal,omitempty"` // 0: it exited
	Followed bool   `json:"followed"`         // it ended because of another
}

// WriteVerdict replaces the verdict of v.Attempt durably. Of one that is too long to be read back the report is cut, and the ends of
// ranks that come last, and what else only people read.
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

// encode is v in JSON, in no more than maxVerdict bytes.
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
		case len(v.Ranks) > 1: // the one that ended first is the first
			v.Ranks = v.Ranks[:len(v.Ranks)/2]
		case len(v.Nodes) > 1:
			v.Nodes = v.Nodes[:len(v.Nodes)/2]
		default:
			return nil, fmt.Errorf("it takes %d bytes, and %d are read back", len(data), maxVerdict)
		}
	}
}

// Verdict reads the verdict of an attempt. An error that is fs.ErrNotExist
// means that there is none (yet), a *json.SyntaxError that a crash cut it short.
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
