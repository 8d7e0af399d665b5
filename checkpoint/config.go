package checkpoint

import (
	"errors"
	"fmt"
)

// Config is the [checkpoint] table of a job.
type Config struct {
	EverySteps int    `json:"every_steps"` // 0: only at the end
	KeepLast   int    `json:"keep_last"`   // at least 2
	Codec      string `json:"codec"`       // "auto" (zstd), "zstd" or "none"
	Async      bool   `json:"async"`       // allows saves to overlap training; this version never does
	Resume     string `json:"resume"`      // "auto" or "never"
}

// DefaultConfig is what a key left out means.
func DefaultConfig() Config {
	return Config{EverySteps: 200, KeepLast: 3, Codec: "auto", Async: true, Resume: "auto"}
}

// Validate returns every fault of the table, joined.
func (c Config) Validate() error {
	var errs []error
	if c.EverySteps < 0 {
		errs = append(errs, fmt.Errorf("every_steps is %d: must be 0 (save only at the end) or more", c.EverySteps))
	}
	if c.KeepLast < minKeep {
		errs = append(errs, fmt.Errorf("keep_last is %d: must be at least %d, or a corrupt checkpoint has nothing before it", c.KeepLast, minKeep))
	}
	if _, err := parseCodec(c.Codec); err != nil {
		errs = append(errs, err)
	}
	if c.Resume != "auto" && c.Resume != "never" {
		errs = append(errs, fmt.Errorf(`resume is %q: must be "auto" or "never"`, c.Resume))
	}
	return errors.Join(errs...)
}
