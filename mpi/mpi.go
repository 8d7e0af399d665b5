package mpi

import (
	"context"
	"log/slog"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

// Config is the [mpi] table of a job.
type Config struct {
	Transport     string        `json:"transport"`     // "auto" or "tcp"
	Algorithm     string        `json:"algorithm"`     // "auto" or "ring"
	Deterministic bool          `json:"deterministic"` // true: the only kind there is so far
	Timeout       time.Duration `json:"timeout"`       // longest time without progress
}

func DefaultConfig() Config {
	return Config{Transport: "auto", Algorithm: "auto", Deterministic: true, Timeout: 10 * time.Minute}
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
	Log        *slog.Logger
}

type Comm struct{}

func Init(ctx context.Context, cfg InitConfig) (*Comm, error) { panic("stub") }

// InitEnv meets by env://: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and,
// where ddpbatch launched this rank, DDPBATCH_STORE, DDPBATCH_SECRET,
// DDPBATCH_LISTEN, DDPBATCH_RUN_ID and DDPBATCH_ATTEMPT.
func InitEnv(ctx context.Context, lookup func(string) (string, bool), cfg Config, log *slog.Logger) (*Comm, error) {
	panic("stub")
}

// Self is the communicator of a world of one.
func Self() *Comm { panic("stub") }

func (c *Comm) Rank() int                         { panic("stub") }
func (c *Comm) Size() int                         { panic("stub") }
func (c *Comm) Barrier(ctx context.Context) error { panic("stub") }
func (c *Comm) Close() error                      { panic("stub") }

type Number interface {
	~float32 | ~float64 | ~int32 | ~int64 | ~uint8
}
type Op uint8

const (
	Sum Op = iota + 1
	Min
	Max
)

func AllReduce[T Number](ctx context.Context, c *Comm, buf []T, op Op) error   { panic("stub") }
func Broadcast[T Number](ctx context.Context, c *Comm, buf []T, root int) error { panic("stub") }
