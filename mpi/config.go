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

// Config is the [mpi] table of a job. An empty word or a zero time-out stands for what
// DefaultConfig has.
type Config struct {
	Transport     string        `json:"transport"`         // "auto", "shm", "tcp" or "ucx"
	Algorithm     string        `json:"algorithm"`         // of all-reduce: "auto" or a name
	Deterministic bool          `json:"deterministic"`     // reductions in the canonical order
	Timeout       time.Duration `json:"timeout"`           // longest time without progress
	Encrypt       bool          `json:"encrypt,omitempty"` // data between ranks that share no memory; the same on all ranks

	// Streams is over how many TCP connections the data of two ranks goes that share no memory, up to transport.MaxStreams; 0:
	// as many as are good for the number of ranks.
	Streams int `json:"-"`
}

// DefaultConfig is what a job gets that says nothing.
func DefaultConfig() Config {
	return Config{Transport: "auto", Algorithm: "auto", Deterministic: true, Timeout: 10 * time.Minute}
}

// Validate tells all that is wrong with c. Each error begins with the name of its key.
func (c Config) Validate() error {
	var errs []error
	switch c.Transport {
	case "", "auto", "shm", "tcp", "ucx":
	default:
		errs = append(errs, fmt.Errorf("transport %q is not known: use \"auto\", \"shm\", \"tcp\" or \"ucx\"", c.Transport))
	}
	if c.Transport == "ucx" && c.Encrypt {
		errs = append(errs, errors.New("encrypt is true, and transport is \"ucx\", which does not encrypt: leave out one of the two"))
	}
	if err := c.checkAlgorithm(); err != nil {
		errs = append(errs, err)
	}
	if c.Streams < 0 || c.Streams > transport.MaxStreams {
		errs = append(errs, fmt.Errorf("streams is %d: it must be a number from 0 to %d", c.Streams, transport.MaxStreams))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout %v is negative", c.Timeout))
	}
	return errors.Join(errs...)
}

// checkAlgorithm knows all but whether the algorithm fits the number of ranks. Its error begins with the word algorithm.
func (c Config) checkAlgorithm() error {
	switch c.Algorithm {
	case "", "auto", sharedName, hierarchicalName:
		return nil
	}
	const some = 2 // ranks, which all algorithms work for
	_, err := model.Named(algorithm.AllReduces(), c.Algorithm, some, c.Deterministic)
	return err
}

// complete fills in what was left out.
func (c Config) complete() Config {
	d := DefaultConfig()
	c.Transport, c.Algorithm, c.Timeout = cmp.Or(c.Transport, d.Transport), cmp.Or(c.Algorithm, d.Algorithm), c.timeout()
	return c
}

// sharing is what the transport means for ranks of one machine.
func (c Config) sharing() transport.Sharing {
	switch c.Transport {
	case "tcp", "ucx":
		return transport.ShareNever
	case "shm":
		return transport.ShareAlways
	}
	return transport.ShareWhereItWorks
}

// ucx is what the transport means for ranks that share no memory.
func (c Config) ucx() transport.UCX {
	switch c.Transport {
	case "tcp", "shm":
		return transport.UCXNever
	case "ucx":
		return transport.UCXAlways
	}
	return transport.UCXWhereItWorks
}

// timeout is c.Timeout, or the default.
func (c Config) timeout() time.Duration { return cmp.Or(c.Timeout, DefaultConfig().Timeout) }

// InitConfig is what Init needs to know. All ranks have the same but for Rank, Listen, OwnCores, Flight and Log.
type InitConfig struct {
	Rank, Size int
	Store      store.Store // shared by all ranks; Init does not close it
	Listen     string      // IP address to listen on and to publish
	Run        string      // names the run that the ranks are of
	Attempt    int         // which start of that run, from 1
	Secret     Secret      // of NewSecret or ParseSecret; the zero Secret is refused
	Group      string      // tells groups that meet at one store in one attempt apart; may be empty
	Config     Config
	OwnCores   bool         // no other rank runs on the cores that this one is bound to
	Flight     string       // file to write the last operations to at the first failure, or empty
	Log        *slog.Logger // nil discards
}

// prefix is where in the store the ranks of this group and attempt meet.
func (cfg InitConfig) prefix() string {
	if cfg.Group == "" {
		return fmt.Sprintf("mpi/%d", cfg.Attempt)
	}
	return fmt.Sprintf("mpi/%d/group/%s", cfg.Attempt, cfg.Group)
}

// Secret is what the ranks of a run prove to each other when they connect: 32 bytes that nobody else knows. [NewSecret] makes one, and
// [ParseSecret] reads what Hex gives. [store.Secret] lists its methods, and says when it is hidden.
type Secret = store.Secret

// NewSecret makes a Secret at random, once for all ranks. The others get its Hex, and read it with ParseSecret. The error is always nil.
func NewSecret() (Secret, error) { return store.NewSecret(), nil }

// ParseSecret reads 64 hexadecimal digits. Its errors do not show the text.
func ParseSecret(text string) (Secret, error) { return store.ParseSecret(text) }
