package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/model"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// Config is the [mpi] table of a job. An empty string or a zero time-out stands for the value in DefaultConfig.
type Config struct {
	Transport     string        `json:"transport"`         // "auto", "shm", "tcp" or "ucx"
	Algorithm     string        `json:"algorithm"`         // of all-reduce: "auto" or a name
	Deterministic bool          `json:"deterministic"`     // reductions in the canonical order
	Timeout       time.Duration `json:"timeout"`           // longest time without progress
	Encrypt       bool          `json:"encrypt,omitempty"` // encrypt data between ranks that do not share memory; the same on all ranks

	// Streams is the number of TCP connections for data between two ranks that do not share memory, at most transport.MaxStreams. 0 stands
	// for a number that suits the number of ranks.
	Streams int `json:"-"`
}

// DefaultConfig returns the configuration of a job whose file says nothing about it.
func DefaultConfig() Config {
	return Config{Transport: "auto", Algorithm: "auto", Deterministic: true, Timeout: 10 * time.Minute}
}

// Validate returns all faults of c. Each error begins with the name of its key.
func (c Config) Validate() error {
	var errs []error
	switch c.Transport {
	case "", "auto", "shm", "tcp", "ucx":
	default:
		errs = append(errs, fmt.Errorf("transport %q is unknown: use \"auto\", \"shm\", \"tcp\" or \"ucx\"", c.Transport))
	}
	if c.Transport == "ucx" && c.Encrypt {
		errs = append(errs, errors.New("encrypt is true, but transport \"ucx\" does not encrypt: remove one of the two"))
	}
	if err := c.checkAlgorithm(); err != nil {
		errs = append(errs, err)
	}
	if c.Streams < 0 || c.Streams > transport.MaxStreams {
		errs = append(errs, fmt.Errorf("streams must be from 0 to %d, got %d", transport.MaxStreams, c.Streams))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout must not be negative, got %v", c.Timeout))
	}
	return errors.Join(errs...)
}

// checkAlgorithm checks everything but whether the algorithm fits the number of ranks. Its error begins with the word algorithm.
func (c Config) checkAlgorithm() error {
	switch c.Algorithm {
	case "", "auto", sharedName, hierarchicalName:
		return nil
	}
	const some = 2 // a number of ranks for which every algorithm works
	_, err := model.Named(algorithm.AllReduces(), c.Algorithm, some, c.Deterministic)
	return err
}

// complete fills in what was left out.
func (c Config) complete() Config {
	d := DefaultConfig()
	c.Transport, c.Algorithm, c.Timeout = cmp.Or(c.Transport, d.Transport), cmp.Or(c.Algorithm, d.Algorithm), c.timeout()
	return c
}

// sharing returns what the transport means for ranks of one machine.
func (c Config) sharing() transport.Sharing {
	switch c.Transport {
	case "tcp", "ucx":
		return transport.ShareNever
	case "shm":
		return transport.ShareAlways
	}
	return transport.ShareWhereItWorks
}

// ucx returns what the transport means for ranks that do not share memory.
func (c Config) ucx() transport.UCX {
	switch c.Transport {
	case "tcp", "shm":
		return transport.UCXNever
	case "ucx":
		return transport.UCXAlways
	}
	return transport.UCXWhereItWorks
}

// timeout returns c.Timeout, or the default.
func (c Config) timeout() time.Duration { return cmp.Or(c.Timeout, DefaultConfig().Timeout) }

// InitConfig is the configuration of Init. It must be the same on all ranks, except for Rank, Listen, OwnCores, Flight and Log.
type InitConfig struct {
	Rank, Size int
	Store      store.Store // shared by all ranks; Init does not close it
	Listen     string      // IP address to listen on and to publish
	Run        string      // the name of the run
	Attempt    int         // the number of this start of the run, from 1
	Secret     Secret      // from NewSecret or ParseSecret; the zero Secret is refused
	Group      string      // tells apart the groups that use one store in one attempt; may be empty
	Config     Config
	OwnCores   bool         // no other rank runs on the cores that this one is bound to
	Flight     string       // the file for the last operations, written at the first failure, or empty
	Log        *slog.Logger // nil: log nothing
}

// prefix returns the prefix of the store's keys that the ranks of this group and attempt use.
func (cfg InitConfig) prefix() string {
	if cfg.Group == "" {
		return fmt.Sprintf("mpi/%d", cfg.Attempt)
	}
	return fmt.Sprintf("mpi/%d/group/%s", cfg.Attempt, cfg.Group)
}

// Secret is what the ranks of a run prove to each other when they connect: 32 bytes that nobody else knows. [NewSecret] makes one, and
// [ParseSecret] reads the text that Hex returns. [store.Secret] lists its methods, and says when it is hidden.
type Secret = store.Secret

// NewSecret makes a random Secret. Make it once, give its Hex to all ranks, and let them read it with ParseSecret. The error is always nil.
func NewSecret() (Secret, error) { return store.NewSecret(), nil }

// ParseSecret reads 64 hexadecimal digits. Its errors do not contain the text.
func ParseSecret(text string) (Secret, error) { return store.ParseSecret(text) }
