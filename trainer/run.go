package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi"
	"ddpbatch/trainer/blas"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/ddp"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
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

// classes are the errors that callers on every rank tell apart, to choose an exit code: those that mpi.Agree and mpi.FromRoot keep.
var classes = []error{
	ErrMismatch, ErrDiverged, checkpoint.ErrFenced, checkpoint.ErrNoSpace, checkpoint.ErrCorrupt, checkpoint.ErrFormatTooNew, errStopped,
}

// Env is what a rank trains with, besides the job's Config.
type Env struct {
	Comm *mpi.Comm // the ranks; Run does not close it

	// Checkpoints is the folder to save to, opened for an attempt from 1 on, and to look in for a checkpoint to go on from; nil: no
	// checkpoints. EverySteps is how often to save between the end and stops; 0: not between. Resume asks
	// to go on from the newest one, if there is any. Without it, the first attempt from AnewFrom on (0: 1) that gets there begins from
	// nothing, whatever
	// there is; the later ones, and a restart within it, go on from what was saved since. AtStart asks to save, where there was none,
	// before the first step. With KeepBest there is a
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

	// bytes that this rank may use for copies of the state, what a hook of ddp.compress keeps included; 0: as many as it needs
	MaxMemory int64
	Local     string // folder on the node's own disk that checkpoints are written to first; empty: none
	Replicate bool   // with Local: each shard goes to another node's disk, too, until it is shared. The same on all ranks
	Node      string // this rank's node: ranks with the same one share Local. For Replicate
	FS        vfs.FS // that ranks other than 0 write checkpoints to; nil: the operating system's

	// Deadline is when the ranks will be killed; zero: never. Rank 0's counts. Where there are checkpoints, the ranks stop by themselves
	// while there is still time for two steps, or what an evaluation does before it is asked again, and for a save that takes as long as 95
	// of 100 have taken. Result.Stopped is true then.
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
	// Alive, where set, is called on every rank after each step, and after each round of an evaluation: while training gets on. It
	// should return at once.
	Alive func()
	// Progress, where set, is called on every rank after each step, before Alive, with the step and where this rank's time in steps has
	// gone so far. It should return at once.
	Progress func(step int64, spent Spent)

	// Stop is closed when this rank is asked to stop. All ranks then stop after the same step,
	// even if only one of them was asked; before the first, where it still opens its data. nil: never.
	Stop <-chan struct{}

	Clock func() time.Time // nil: time.Now
	Log   *slog.Logger     // nil: silent

	onStep func(stepDone) // tests: is called on rank 0 after every step
}

// Spent is where the time of a rank's steps has gone. What other collectives wait for than those of gradients, sums and buffers is in
// Compute.
type Spent struct{ Compute, Input, Comm time.Duration }

// stepDone is a step that was taken.
type stepDone struct {
	step, steps int64 // its number, and how many there are in the whole run
	epoch       int
	loss        float64 // mean over all ranks
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

// trainer is one rank's training.
type trainer struct {
	cfg Config
	env Env
	now func() time.Time
	log *slog.Logger

	topology    topology
	train, eval data.Dataset // eval may be nil
	sampler     *data.DistributedSampler
	loader      *data.Loader
	blas        blas.Library
	advice      string // rank 0: what would make it faster; "": nothing
	engine      engine
	names       []string    // of all parameters and buffers of the whole model
	params      []*nn.Param // of the engine's model
	ddp         *ddp.DDP
	hook        ddp.Hook           // nil: gradients travel as they are
	batchNorm   *ddp.SyncBatchNorm // nil: batch normalization is each rank's own
	optimizer   optimizer
	schedule    optim.Schedule
	scaler      *optim.LossScaler // of float16; else nil
	average     *ddp.Averager     // of local SGD; else nil
	drift       *ddp.Drift        // nil: parameters are not compared
	spent       Spent             // in steps
	inputTime   time.Duration     // of this step, in waiting for the loader
	inSync      bool              // all ranks have the same parameters
	checked     int64             // the step after which the parameters were compared
	bad         badPass
	facts       facts
	policy      checkpointPolicy

	at          position
	dealtBefore int   // rows of the epoch that were dealt before the sampler's order of now
	resumed     int64 // the step that was resumed from, or 0
	saves             // of checkpoints

	pace              pace          // of the steps
	evaluationRound   time.Duration // of the newest evaluation; 0: there was none
	guessedSaveTime   time.Duration // of a save, before the first
	nextDeadlineCheck time.Time     // rank 0: before it, the deadline is not looked at again
	timeToDeadline    time.Duration // rank 0: at the last look
	saveTime          time.Duration // rank 0: what a save takes that begins at the last look
	outOfTime         bool          // rank 0: the deadline is too near to go on
	quickSave         bool          // all ranks: the deadline is too near for a save of the usual kind

	pass       nn.Pass
	sums       [sums]float64                           // what travels with the gradients
	share      float64                                 // of the step's rows that this rank has in the last of its passes
	lastPass   bool                                    // of the step
	onLoss     func(ctx context.Context, loss float64) // lossKnown: a value that is made once, so that a step allocates nothing
	last       *data.Batch                             // of the newest pass
	none       data.Batch                              // without rows
	batch      data.Batch                              // of evaluate
	rows       []int                                   // likewise
	evaluation evaluation

	sinceMetrics, epoch meter     // since the last line of metrics, and in this epoch
	reported            meter     // what the last line of metrics is about
	printedAt           time.Time // of the last line for people
	metricsBroken       bool      // it was warned of
	metricsTorn         bool      // the last line has no end
}

// Run trains as cfg says, as one rank of env.Comm; every rank of it calls Run with the same
// cfg. It returns when the epochs are over, when all have agreed to stop (Result.Stopped), or with
// an error, which then every rank gets: its own or, with that rank's number, another's.
//
// A run that was stopped and goes on from its checkpoint takes the same steps, bit for bit, as one that was not, where the ranks
// are as many as before. With another number of ranks it goes on after the last row that was trained on.
func Run(ctx context.Context, cfg Config, env Env) (Result, error) {
	if env.Comm == nil {
		return Result{}, errors.New("train: no communicator")
	}
	t := newTrainer(cfg, env)
	defer t.close()
	err := t.setUp(ctx)
	if errors.Is(err, errStopped) {
		return Result{Stopped: true}, nil
	}
	if err != nil {
		return Result{}, t.elsewhere(err)
	}
	return t.run(ctx)
}

// elsewhere has ErrElsewhere be found in what went wrong on another rank.
func (t *trainer) elsewhere(err error) error {
	if from, ok := errors.AsType[*mpi.RemoteError](err); ok && from.Rank() != t.env.Comm.Rank() {
		return fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	return err
}

func newTrainer(cfg Config, env Env) *trainer {
	t := &trainer{cfg: cfg, env: env, now: env.Clock, log: env.Log, saves: saves{committedStep: -1, begunStep: -1}}
	if t.now == nil {
		t.now = time.Now
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if env.Out == nil {
		t.env.Out = io.Discard
	}
	return t
}

func (t *trainer) close() {
	if t.loader != nil {
		t.loader.Close()
	}
	t.closeSaver()
	if t.ddp != nil {
		t.ddp.Close()
	}
	if t.optimizer.zero != nil {
		t.optimizer.zero.Close()
	}
}

// setUp builds everything, so that after it all ranks stand before the same step with the same state.
func (t *trainer) setUp(ctx context.Context) error {
	comm := t.env.Comm
	if err := mpi.Agree(ctx, comm, t.prepare(ctx), classes...); err != nil {
		return err
	}
	if err := t.agreeOnJob(ctx); err != nil {
		return err
	}
	var err error
	if t.topology, err = newTopology(ctx, comm, t.cfg); err != nil {
		return err
	}
	if t.cfg.DDP.SyncBatchNorm {
		if t.batchNorm, err = ddp.NewSyncBatchNorm(ctx, t.topology.dataParallelGroup); err != nil {
			return err
		}
	}
	if err := t.agreeOnPolicy(ctx); err != nil {
		return err
	}
	if err := mpi.Agree(ctx, comm, t.build(), classes...); err != nil {
		return err
	}
	if err := t.wrap(ctx); err != nil {
		return err
	}
	return t.resume(ctx)
}

// prepare makes what a rank can make without knowing the others.
func (t *trainer) prepare(ctx context.Context) error {
	if err := t.cfg.Validate(); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if err := topologyFits(t.cfg, t.env.Comm.Size()); err != nil {
		return err
	}
	if err := t.openData(ctx); err != nil {
		return err
	}
	replicas := t.env.Comm.Size() / t.cfg.Pipeline
	if t.train.Len() < replicas {
		return fmt.Errorf("%d rows to train on are too few for %d ranks: give each rank at least one, or start fewer ranks",
			t.train.Len(), replicas)
	}
	var err error
	if t.facts, err = factsOf(ctx, t.cfg, t.train); err != nil {
		return err
	}
	return t.openBLAS()
}

// build makes this rank's part of the model and what reads its data.
func (t *trainer) build() error {
	var err error
	t.sampler, err = data.NewDistributedSampler(data.SamplerConfig{
		Rows: t.train.Len(), World: t.topology.replicas, Rank: t.topology.replica,
		Seed: t.cfg.Seed, Shuffle: t.cfg.Data.Shuffle, Remainder: data.Remainder(t.cfg.Data.Remainder),
	})
	if err != nil {
		return err
	}
	t.loader = data.NewLoader(t.train, prefetch)
	t.pass = nn.Pass{Training: true, BLAS: t.blas}
	t.onLoss = t.lossKnown
	if t.engine, err = t.newEngine(); err != nil {
		return err
	}
	t.params = t.engine.model().Params()
	t.hook, err = newHook(t.cfg)
	return err
}

// prefetch is how many batches are read ahead.
const prefetch = 2

// wrap makes replicas of the model equal on all ranks, and whatever works on its gradients.
func (t *trainer) wrap(ctx context.Context) error {
	group := t.topology.dataParallelGroup
	var err error
	if t.ddp, err = ddp.New(ctx, group, t.params, t.engine.model().Buffers(), ddpConfig(t.cfg, t.hook, t.batchNorm)); err != nil {
		return err
	}
	if t.optimizer, err = newOptimizer(ctx, group, t.params, t.cfg.Optimizer); err != nil {
		return err
	}
	if t.cfg.Precision == "float16" {
		t.scaler = optim.NewLossScaler()
	}
	return t.newChecks(ctx)
}
