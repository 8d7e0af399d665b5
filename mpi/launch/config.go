package launch

import "time"

// Config is the [launch] table of a job.
type Config struct {
	NprocPerNode Nproc         `json:"nproc_per_node"`
	Command      []string      `json:"command,omitempty"` // empty: the built-in trainer
	Mode         string        `json:"mode"`              // "agent": one task a node | "task": one task a rank
	MaxRestarts  int           `json:"max_restarts"`
	Interface    string        `json:"interface,omitempty"`
	WarnSignal   string        `json:"warn_signal"`
	Grace        time.Duration `json:"grace"` // between TERM and KILL
}

// Nproc says how many workers each node runs: one number, a list with one
// number a node, or a word ("gpu", "cpu", "auto") that each node works out.
type Nproc struct {
	Counts []int  `json:"counts,omitempty"`
	Word   string `json:"word,omitempty"`
}

// DefaultConfig is what a job gets that says nothing.
func DefaultConfig() Config {
	return Config{NprocPerNode: Nproc{Counts: []int{1}}, Mode: "agent", WarnSignal: "USR2", Grace: defaultGrace}
}
