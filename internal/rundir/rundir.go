package rundir

import (
	"encoding/json"
	"time"
)

// Spec is spec.json: what submit decided, for every later command.
type Spec struct {
	Schema   int             `json:"schema"` // 1
	Run      string          `json:"run"`    // the run directory's own name
	Name     string          `json:"name"`
	Kind     string          `json:"kind"` // "slurm" or "simulate"
	Created  time.Time       `json:"created"`
	Version  string          `json:"version"`
	SHA256   string          `json:"sha256"` // of bin/ddpbatch
	WorkDir  string          `json:"workdir"`
	Nodes    int             `json:"nodes"`
	Job      json.RawMessage `json:"job"` // the whole job, as internal/jobfile resolved it
}

// Dir is a run directory.
type Dir struct{}

type CreateConfig struct {
	Parent  string // runs/, made where absent
	Spec    Spec   // Run, Created and SHA256 are filled in
	JobFile []byte // copied to job.toml
	Binary  string // copied to bin/ddpbatch
	Now     time.Time
}

func Create(c CreateConfig) (*Dir, error) { panic("stub") }
func Open(path string) (*Dir, error)      { panic("stub") }

// Find opens what a user names: a run directory, or a job id below parent (runs/<name>-<jobid>).
func Find(parent, jobOrPath string) (*Dir, error) { panic("stub") }

// List opens every run directory below parent, newest first.
func List(parent string) ([]*Dir, error) { panic("stub") }

func (d *Dir) Path() string            { panic("stub") } // absolute
func (d *Dir) Spec() Spec              { panic("stub") }
func (d *Dir) WriteSpec(Spec) error    { panic("stub") }
func (d *Dir) Binary() string          { panic("stub") }
func (d *Dir) ScriptPath() string      { panic("stub") }
func (d *Dir) SpecPath() string        { panic("stub") }
func (d *Dir) MetricsPath() string     { panic("stub") }
func (d *Dir) CheckpointsPath() string { panic("stub") }
func (d *Dir) WriteScript(text string) error { panic("stub") }

// SetJobID records the newest job id and points runs/<name>-<jobid> at the run.
func (d *Dir) SetJobID(id string) error  { panic("stub") }
func (d *Dir) JobID() (string, error)    { panic("stub") } // "" where none yet
func (d *Dir) SlurmLogPath(jobID string) string { panic("stub") }

// ClaimAttempt makes attempts/<n> for the next n, exclusively.
func (d *Dir) ClaimAttempt() (int, error) { panic("stub") }
func (d *Dir) NewestAttempt() (int, error) { panic("stub") } // 0: none

// Fence returns ErrSuperseded where an attempt above n exists.
func (d *Dir) Fence(n int) error { panic("stub") }

func (d *Dir) LogPath(attempt int, host string, rank int, stream string) string { panic("stub") }

// Verdict is attempts/<n>/verdict.json.
type Verdict struct {
	Attempt   int       `json:"attempt"`
	JobID     string    `json:"job_id,omitempty"`
	Cause     string    `json:"cause"` // "done", "crash", "signal", "cancelled", "agent-lost", "start", "stopped", "timeout"
	FirstRank int       `json:"first_rank"` // -1: none
	Host      string    `json:"host,omitempty"`
	Exit      int       `json:"exit"` // what run exits with
	Signal    int       `json:"signal,omitempty"`
	Step      int64     `json:"step,omitempty"`
	Requeue   bool      `json:"requeue"`
	Message   string    `json:"message"`
	Time      time.Time `json:"time"`
}

func (d *Dir) WriteVerdict(v Verdict) error           { panic("stub") } // durable
func (d *Dir) Verdict(attempt int) (Verdict, error)   { panic("stub") }

// Event is a line of ledger.jsonl.
type Event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // "submit", "begin", "end", "cancel", "resume"
	Attempt int       `json:"attempt,omitempty"`
	Cause   string    `json:"cause,omitempty"`
	Node    string    `json:"node,omitempty"`
	Step    int64     `json:"step,omitempty"`
	Detail  string    `json:"detail,omitempty"`
}

func (d *Dir) Append(e Event) error          { panic("stub") }
func (d *Dir) Ledger() ([]Event, error)      { panic("stub") }
