package launch

import (
	"errors"
	"fmt"
	"time"

	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/reach"
)

// Config is the [launch] table of a job.
type Config struct {
	NprocPerNode Nproc         `json:"nproc_per_node"`
	Command      []string      `json:"command,omitempty"` // empty: the built-in trainer
	Mode         string        `json:"mode"`              // "agent": one task a node | "task": one task a rank
	MaxRestarts  int           `json:"max_restarts"`
	MinNodes     int           `json:"min_nodes,omitempty"`   // the fewest nodes to go on with where others are lost; 0: all
	Interface    string        `json:"interface,omitempty"`   // see reach.ParseInterface; "": the one that routes to the peer
	WarnSignal   string        `json:"warn_signal"`           // "USR2" and the like: forwarded before a stop, to workers that have a handler
	Prefix       string        `json:"prefix"`                // of the lines of a command's ranks, where there are several (output.Config); "": none
	Grace        time.Duration `json:"grace"`                 // between TERM and KILL
	Hang         time.Duration `json:"hang"`                  // workers without a sign of life for so long hang; 0: never
	GPUs         string        `json:"gpus"`                  // what each worker sees: "auto" | "all" | "one"
	TorchStore   *bool         `json:"torch_store,omitempty"` // serve PyTorch's store at MASTER_PORT; nil: where the command is Python
	NUMA         string        `json:"numa,omitempty"`        // torchrun's --numa-binding: "node" | "socket" | "exclusive" | "core-complex"; "": none
}

// defaultHang is longer than a save of a large model, or the compilation before its first step, takes.
const defaultHang = 30 * time.Minute

// Nproc says how many workers each node runs: one number, a list with one
// number a node, or a word ("gpu", "cpu", "auto") that each node works out.
type Nproc struct {
	Counts []int  `json:"counts,omitempty"`
	Word   string `json:"word,omitempty"`
}

// DefaultConfig is what a job gets that says nothing.
func DefaultConfig() Config {
	return Config{NprocPerNode: Nproc{Counts: []int{1}}, Mode: "agent", WarnSignal: "USR2", Prefix: output.DefaultPrefix, Grace: defaultGrace, Hang: defaultHang, GPUs: "auto"}
}

// Validate says what is wrong with the keys of [launch], each error beginning with its key.
func (c Config) Validate() error {
	var errs []error
	if _, err := reach.ParseInterface(c.Interface); err != nil {
		errs = append(errs, fmt.Errorf("interface: %w", err))
	}
	if err := output.ParsePrefix(c.Prefix); err != nil {
		errs = append(errs, fmt.Errorf("prefix: %w", err))
	}
	return errors.Join(errs...)
}
