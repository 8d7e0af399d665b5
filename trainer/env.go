package trainer

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi"
)

var (
	// ErrMismatch: the newest checkpoint belongs to another model, or to a job whose steps would
	// not be the same. The error's text names everything that differs.
	ErrMismatch = errors.New("the checkpoint does not fit this job")
	// ErrDiverged: a loss or a parameter is not a finite number.
	ErrDiverged = errors.New("training diverged")
	// ErrElsewhere: what went wrong did so on another rank, which the error's text names, and which ends with
	// an error of its own.
	ErrElsewhere = errors.New("another rank failed")
)

// Env is what a rank trains with, besides the job's Config.
type Env struct {
	Comm *mpi.Comm // the ranks; Run does not close it

	// Checkpoints is the folder to save to, opened for an attempt from 1 on, and to look in for a checkpoint to go on from; nil: no
	// checkpoints. EverySteps is how often to save between the end and stops; 0: not between. Resume asks
	// to go on from the newest one, if there is any. Without it, the first attempt from AnewFrom on (0: 1) that gets there begins from nothing, whatever
	// there is; the later ones, and a restart within it, go on from what was saved since. AtStart asks to save, where there was none, before the first step. With KeepBest there is a
	// checkpoint after every evaluation, for the folder's Policy to choose from. With Async training goes on while a
	// checkpoint is written, and Delta is how many after each full one hold only what has changed. Only rank 0's values of these count.
	Checkpoints *checkpoint.Dir
	EverySteps  int
	Resume      bool
	AnewFrom    int
	AtStart     bool
	KeepBest    bool
	Async       bool
	Delta       int

	MaxMemory int64  // bytes that this rank may use for copies of the state, what a hook of ddp.compress keeps included; 0: as many as it needs
	Local     string // folder on the node's own disk that checkpoints are written to first; empty: none
	Replicate bool   // with Local: each shard goes to another node's disk, too, until it is shared. The same on all ranks
	Node      string // this rank's node: ranks with the same one share Local. For Replicate
	FS        vfs.FS // that ranks other than 0 write checkpoints to; nil: the operating system's

	// Deadline is when the ranks will be killed; zero: never. Rank 0's counts. Where there are checkpoints, the ranks stop by themselves while
	// there is still time for two steps, or what an evaluation does before it is asked again, and for a save that takes as long as 95 of 100 have taken. Result.Stopped is true then.
	Deadline time.Time

	WorkDir string // paths in Config are relative to it
	Threads int    // cores that this rank may compute on; 0: one
	// LibraryDirs are where blas = "auto" looks for a library before it asks the system.
	LibraryDirs []string
	Attempt     int // goes into the metrics

	// Out gets this rank's lines for people: one at each epoch's start and, on rank 0, one at its end, and every Every in between.
	Out   io.Writer
	Every time.Duration // 0: none in between
	// Metrics gets rank 0's lines for programs, each in one Write; nil: none. Other ranks never write.
	Metrics io.Writer
	// Scalars gets rank 0's numbers by name, such as "loss/train", at a step; nil: nobody wants them.
	Scalars func(step int64, at time.Time, values map[string]float64) error
	// Progress, where set, is called on rank 0 after every step, and should return at once.
	Progress func(Progress)

	// Alive, where set, is called on every rank after each step, and after each round of an evaluation: while training gets on. It
	// should return at once.
	Alive func()

	// Stop is closed when this rank is asked to stop. All ranks then stop after the same step,
	// even if only one of them was asked; before the first, where it still opens its data. nil: never.
	Stop <-chan struct{}

	Clock func() time.Time // nil: time.Now
	Log   *slog.Logger     // nil: silent
}

// Progress is where training is.
type Progress struct {
	Step, Steps   int64   // taken, and in the whole run
	Epoch, Epochs int     // this one, from 0; and in the whole run
	Loss          float64 // mean over all ranks of the last step's loss
	SamplesPerS   float64 // rows of all ranks per second in this epoch
	CommShare     float64 // share of that time spent in collectives with nothing else going on
}

// Result is how training ended, the same on every rank.
type Result struct {
	Steps      int64   // optimizer steps since the very start, those before a resume included
	Epochs     int     // epochs that are complete
	Loss       float64 // mean over the steps of the last epoch that had any
	Evaluated  bool    // whether the next two were measured, in the last evaluation of this attempt
	Accuracy   float64 // share of evaluation rows classified right, 0 to 1; 0 for regression
	EvalLoss   float64 // mean loss over the evaluation rows
	Checkpoint string  // path of the newest checkpoint; empty: there is none
	Best       string  // path of that of the best evaluation in this attempt, where it is kept; else empty
	Early      bool    // the evaluations got no better for as long as evaluate.patience says
	Stopped    bool    // asked to stop before the end; with checkpoints, all that was done is saved
	OutOfTime  bool    // Stopped because of Env.Deadline, whether or not somebody asked besides
	Resumed    int64   // the step that was resumed from; 0: from the start
}
