package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"ddpbatch/checkpoint/internal/chunk"
)

// Config is the [checkpoint] table of a job.
type Config struct {
	EverySteps int           `json:"every_steps"`           // 0: only at the end
	KeepLast   int           `json:"keep_last"`             // keep this many of the newest; at least 2
	KeepEvery  int           `json:"keep_every,omitempty"`  // also keep steps that are multiples of this; 0: none
	KeepWithin time.Duration `json:"keep_within,omitempty"` // also keep those made no longer ago than this; 0: none
	KeepBest   int           `json:"keep_best,omitempty"`   // also keep this many of the best by train.evaluate.best; 0: none
	Codec      string        `json:"codec"`                 // "auto" (by planes), "zstd" or "none"
	Async      bool          `json:"async"`                 // save while training goes on
	Resume     string        `json:"resume"`                // "auto" or "never"
	Delta      int           `json:"delta,omitempty"`       // after each full one, this many that hold only what has changed; 0: none
	Memory     int64         `json:"memory,omitempty"`      // bytes that a rank may use for copies; 0: no limit
	Local      string        `json:"local,omitempty"`       // folder on each node's own disk to save to first; empty: none
	Replicate  bool          `json:"replicate,omitempty"`   // with Local: keep each shard on another node's disk, too, until it is shared
	AtStart    bool          `json:"at_start,omitempty"`    // save once before the first step
}

// DefaultConfig returns the values of keys that are left out.
func DefaultConfig() Config {
	return Config{EverySteps: 200, KeepLast: 3, Codec: "auto", Async: true, Resume: "auto"}
}

// Validate returns every fault of the table, joined.
func (c Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.EverySteps < 0 {
		fault("every_steps is %d: must be 0 (save only at the end) or more", c.EverySteps)
	}
	errs = append(errs, Policy{Last: c.KeepLast, Every: int64(c.KeepEvery), Within: c.KeepWithin, Best: c.KeepBest}.faults()...)
	if _, err := chunk.ParseCodec(c.Codec); err != nil {
		errs = append(errs, err)
	}
	if c.Resume != "auto" && c.Resume != "never" {
		fault(`resume is %q: must be "auto" or "never"`, c.Resume)
	}
	switch {
	case c.Delta < 0:
		fault("delta is %d: must be 0 (every checkpoint is a full one) or more", c.Delta)
	case c.Delta > 0 && c.Codec == "none":
		fault(`delta is %d and codec is "none": a delta is smaller only if it is compressed; leave one of them out`, c.Delta)
	}
	if c.Memory < 0 {
		fault("memory is %d bytes: must be a size, or 0 (no limit)", c.Memory)
	}
	if c.Local != "" && !filepath.IsAbs(c.Local) {
		fault("local is %q: must be the absolute path of a folder on every node's own disk", c.Local)
	}
	if c.Replicate && c.Local == "" {
		fault("replicate is true but local is not set: replicate copies files from one node's local to another's; set both or neither")
	}
	return errors.Join(errs...)
}

// Policy returns what a run keeps. best is "loss" or "accuracy", whichever evaluations are compared by, or empty if they are not compared.
func (c Config) Policy(best string) Policy {
	p := Policy{Last: c.KeepLast, Every: int64(c.KeepEvery), Within: c.KeepWithin}
	if best != "" && c.KeepBest > 0 {
		p.Best, p.Metric, p.Max = c.KeepBest, "eval_"+best, best == "accuracy"
	}
	return p
}
