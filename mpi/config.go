package mpi

import (
	"fmt"
	"log/slog"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

// Config is the [mpi] table of a job. An empty word or a zero time-out stands for what
// DefaultConfig has.
type Config struct {
	Transport     string        `json:"transport"`     // "auto" or "tcp"
	Algorithm     string        `json:"algorithm"`     // "auto" or "ring"
	Deterministic bool          `json:"deterministic"` // results are reproducible either way: there is no other kind so far
	Timeout       time.Duration `json:"timeout"`       // longest time without progress
}

// DefaultConfig is what a job gets that says nothing.
func DefaultConfig() Config {
	return Config{Transport: "auto", Algorithm: "auto", Deterministic: true, Timeout: 10 * time.Minute}
}

// Validate tells what is wrong with c.
func (c Config) Validate() error {
	switch c.Transport {
	case "", "auto", "tcp":
	default:
		return fmt.Errorf("transport %q is not known: use \"auto\" or \"tcp\"", c.Transport)
	}
	switch c.Algorithm {
	case "", "auto", "ring":
	default:
		return fmt.Errorf("algorithm %q is not known: use \"auto\" or \"ring\"", c.Algorithm)
	}
	if c.Timeout < 0 {
		return fmt.Errorf("the time-out %v is negative", c.Timeout)
	}
	return nil
}

// timeout is c.Timeout, or the default.
func (c Config) timeout() time.Duration {
	if c.Timeout == 0 {
		return DefaultConfig().Timeout
	}
	return c.Timeout
}

// InitConfig is what Init needs to know.
type InitConfig struct {
	Rank, Size int
	Store      store.Store // shared by all ranks; Init does not close it
	Listen     string      // IP address to listen on and to publish
	Run        string
	Attempt    int
	Secret     auth.Secret
	Config     Config
	Log        *slog.Logger // nil discards
}
