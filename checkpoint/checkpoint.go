package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"ddpbatch/internal/vfs"
)

// Config is the [checkpoint] table of a job.
type Config struct {
	EverySteps int    `json:"every_steps"` // 0: only at the end
	KeepLast   int    `json:"keep_last"`   // at least 2
	Codec      string `json:"codec"`       // "auto" (zstd), "zstd" or "none"
	Async      bool   `json:"async"`
	Resume     string `json:"resume"` // "auto" or "never"
}

func DefaultConfig() Config {
	return Config{EverySteps: 200, KeepLast: 3, Codec: "auto", Async: true, Resume: "auto"}
}

var (
	ErrNone         = errors.New("no checkpoint")
	ErrCorrupt      = errors.New("corrupt checkpoint")
	ErrFenced       = errors.New("superseded by a newer attempt")
	ErrNoSpace      = errors.New("no space for the checkpoint")
	ErrFormatTooNew = errors.New("checkpoint format is newer than this program")
)

// Tensor is a named array. Data is row-major and little-endian; the state that holds
// the tensor owns it.
type Tensor struct {
	Name  string
	DType string // "float32", "float64", "int64", "uint8", ...
	Shape []int
	Data  []byte
}

func Float32Tensor(name string, shape []int, v []float32) Tensor { panic("stub") }

// Float32s copies t into dst; an error where type or size differ.
func (t Tensor) Float32s(dst []float32) error { panic("stub") }

// State is all that one checkpoint holds.
type State struct {
	Step    int64
	World   int
	Tensors []Tensor
	// Values are small facts kept in the manifest itself: sampler position, random
	// state, learning rate. Keys are [a-z0-9_.]{1,64}.
	Values map[string]json.RawMessage
}

// Info describes a checkpoint on disk.
type Info struct {
	Step      int64     `json:"step"`
	Path      string    `json:"path"`
	Bytes     int64     `json:"bytes"`
	World     int       `json:"world"`
	Committed bool      `json:"committed"`
	State     string    `json:"state"` // "committed", "partial", "broken"
	Attempt   int       `json:"attempt"`
	Created   time.Time `json:"created"`
}

type Options struct {
	FS       vfs.FS // nil: the operating system's
	Codec    string
	KeepLast int
	Run      string
	Attempt  int
	// Fence returns an error when a newer attempt has begun; it is asked before every
	// commit and every removal.
	Fence func() error
	Log   *slog.Logger
}

// Dir is a run's checkpoints folder.
type Dir struct{}

func Open(path string, o Options) (*Dir, error) { panic("stub") }

func (d *Dir) Save(ctx context.Context, s *State) (Info, error)        { panic("stub") }
func (d *Dir) List(ctx context.Context) ([]Info, error)                { panic("stub") }
func (d *Dir) Latest(ctx context.Context) (*State, Info, error)        { panic("stub") }
func (d *Dir) Load(ctx context.Context, step int64) (*State, error)    { panic("stub") }
func (d *Dir) Verify(ctx context.Context, step int64) error            { panic("stub") }
