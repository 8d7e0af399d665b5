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
	// differ. The error's text names everything that differs.
	ErrMismatch = errors.New("the checkpoint does not fit this job")
	// ErrDiverged: a loss or a parameter is not finite.
	ErrDiverged = errors.New("training diverged")
	// ErrElsewhere: the failure is on another rank, which the error's text names, and which returns
	// an error of its own.
	ErrElsewhere = errors.New("another rank failed")
)

// classes are the errors that callers on every rank distinguish, to choose an exit code: mpi.Agree and mpi.FromRoot preserve them.
var classes = []error{
	ErrMismatch, ErrDiverged, checkpoint.ErrFenced, checkpoint.ErrNoSpace, checkpoint.ErrCorrupt, checkpoint.ErrFormatTooNew, errStopped,
}

// Env is what a rank needs for training besides the job's Config.
type Env struct {
	Comm *mpi.Comm // the ranks; Run does not close it

	// Checkpoints is the folder to save to and to resume from, opened for an attempt from 1 on; nil: no checkpoints. EverySteps is how
	// often to save, besides stops and the end; 0: only then. With Resume, Run resumes from the newest checkpoint, if there is one. Without
	// it, the first attempt from AnewFrom on (0: 1) that gets there begins without a checkpoint, whatever exists; later attempts, and a
	// restart within that one, resume from what was saved since. With AtStart, Run saves before the first step if it did not resume. With
	// KeepBest it saves after every evaluation, for the folder's Policy to choose from. With Async training continues while a
	// checkpoint is written. Delta is how many checkpoints after each full one hold only what has changed. Only rank 0's values of these
	// are used.
	Checkpoints *checkpoint.Dir
	EverySteps  int
	Resume      bool
	AnewFrom    int
	AtStart     bool
	KeepBest    bool
	Async       bool
	Delta       int

	// bytes that this rank may use for copies of the state, including what a hook of ddp.compress keeps; 0: no limit
	MaxMemory int64
	Local     string // folder on the node's own disk that checkpoints are written to first; empty: none
	Replicate bool   // with Local: copy each shard to another node's disk, too, until it is shared. The same on all ranks
	Node      string // this rank's node: ranks with the same name share Local. Used with Replicate
	FS        vfs.FS // file system that ranks other than 0 write checkpoints to; nil: the operating system's

	// Deadline is when the ranks will be killed; zero: never. Rank 0's is used. With checkpoints, the ranks stop by themselves
	// while there is still time for two steps, or for the part of an evaluation before the next check, and for a save that takes as long as
	// the 95th percentile so far. Result.Stopped is true then.
	Deadline time.Time

	WorkDir string // paths in Config are relative to it
	Threads int    // cores that this rank may compute on; 0: one
	// LibraryDirs are the folders in which blas = "auto" looks for a library before it asks the system.
	LibraryDirs []string
	Attempt     int // for the metrics

	// Out gets this rank's lines for people: one at each epoch's start and, on rank 0, one at its end and one every Every.
	Out   io.Writer
	Every time.Duration // 0: no lines within an epoch
	// Metrics gets rank 0's lines for programs, each in one Write; nil: none. Other ranks never write.
	Metrics io.Writer
	// Scalars gets rank 0's numbers by name, such as "loss/train", at a step; nil: not used.
	Scalars func(step int64, at time.Time, values map[string]float64) error
	// Alive, unless nil, is called on every rank after each step, and after each round of an evaluation, as a sign of progress. It
	// should return at once.
	Alive func()
	// Progress, unless nil, is called on every rank after each step, before Alive, with the step and how this rank has spent its time in
	// steps so far. It should return at once.
	Progress func(step int64, spent Spent)

	// Stop is closed to ask this rank to stop. All ranks then stop after the same step,
	// even if only one of them was asked, or before the first step, if this rank is still opening its data. nil: never.
	Stop <-chan struct{}

	Clock func() time.Time // nil: time.Now
	Log   *slog.Logger     // nil: silent

	onStep func(stepDone) // for tests: called on rank 0 after every step
}

// Spent is how the time of a rank's steps was spent. Waiting for collectives other than those of gradients, sums and buffers is part of
// Compute.
type Spent struct{ Compute, Input, Comm time.Duration }

// stepDone describes a step that was taken.
type stepDone struct {
	step, steps int64 // its number, and how many there are in the whole run
	epoch       int
	loss        float64 // mean over all ranks
}

// Result describes how training ended. It is the same on every rank.
type Result struct {
	Steps      int64   // optimizer steps since the run began, including those before a resume
	Epochs     int     // complete epochs
	Loss       float64 // mean over the steps of the last epoch that had any
	Evaluated  bool    // whether this attempt has evaluated; the next two are of the last evaluation
	Accuracy   float64 // share of evaluation rows classified right, 0 to 1; 0 for regression
	EvalLoss   float64 // mean loss over the evaluation rows
	Checkpoint string  // path of the newest checkpoint; empty: there is none
	Best       string  // path of the checkpoint of the best evaluation of the run, if it is kept; else empty
	Early      bool    // the evaluations have not improved for as long as evaluate.patience says
	Stopped    bool    // asked to stop before the end; with checkpoints, everything done is saved
	OutOfTime  bool    // Stopped because of Env.Deadline, even if somebody asked besides
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
	advice      string // rank 0: what would make it faster; empty: nothing
	engine      engine
	names       []string    // of all parameters and buffers of the whole model
	params      []*nn.Param // of the engine's model
	ddp         *ddp.DDP
	hook        ddp.Hook           // nil: gradients are sent uncompressed
	batchNorm   *ddp.SyncBatchNorm // nil: batch normalization uses each rank's own rows
	optimizer   optimizer
	schedule    optim.Schedule
	scaler      *optim.LossScaler // for float16; else nil
	average     *ddp.Averager     // for local SGD; else nil
	drift       *ddp.Drift        // nil: parameters are not compared
	spent       Spent             // in steps
	inputTime   time.Duration     // of this step, waiting for the loader
	inSync      bool              // all ranks have the same parameters
	checked     int64             // the step after which the parameters were last compared
	bad         badPass
	facts       facts
	policy      checkpointPolicy

	at          position
	dealtBefore int   // rows of the epoch that were distributed before the sampler's present order
	resumed     int64 // the step that was resumed from, or 0
	saves             // of checkpoints

	pace              pace          // of the steps
	evaluationRound   time.Duration // of the newest evaluation; 0: there was none
	guessedSaveTime   time.Duration // estimate of a save's time before the first save
	nextDeadlineCheck time.Time     // rank 0: when to check the deadline again
	timeToDeadline    time.Duration // rank 0: at the last check
	saveTime          time.Duration // rank 0: how long a save would have taken at the last check
	outOfTime         bool          // rank 0: the deadline is too near to continue
	quickSave         bool          // all ranks: the deadline is too near for a save of the usual kind

	pass       nn.Pass
	sums       [sums]float64                           // what is summed together with the gradients
	share      float64                                 // share of the step's rows in this rank's latest pass
	lastPass   bool                                    // of the step
	onLoss     func(ctx context.Context, loss float64) // lossKnown, as a value that is made once, so that a step does not allocate
	last       *data.Batch                             // of the newest pass
	none       data.Batch                              // without rows
	batch      data.Batch                              // of evaluate
	rows       []int                                   // of evaluate
	evaluation evaluation

	sinceMetrics, epoch meter     // since the last line of metrics, and in this epoch
	reported            meter     // what the last line of metrics is about
	printedAt           time.Time // of the last line for people
	metricsBroken       bool      // a warning about it was logged
	metricsTorn         bool      // the last line was cut short
}

// Run trains as cfg says, as one rank of env.Comm; every rank of it calls Run with the same
// cfg. It returns when the epochs are over, when all ranks have agreed to stop (Result.Stopped), or with
// an error. Then every rank gets an error: its own or, with that rank's number, another's.
//
// A run that was stopped and resumed from its checkpoint takes the same steps, bit for bit, as one that was not, if the number of ranks
// is the same. With another number of ranks it continues after the last row that was trained on.
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

// elsewhere adds ErrElsewhere to an error of another rank.
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

// setUp builds everything. When it returns, all ranks are before the same step with the same state.
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

// prepare builds what a rank can build without the others.
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

// build builds this rank's part of the model and the reader of its data.
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

// wrap makes the replicas of the model equal on all ranks, and builds what works on its gradients.
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
