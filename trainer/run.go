package trainer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"ddpbatch/trainer/data"
	"ddpbatch/trainer/ddp"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

// trainer is one rank's training.
type trainer struct {
	cfg Config
	env Env
	now func() time.Time
	log *slog.Logger

	train, eval data.Dataset // eval may be nil
	sampler     *data.DistributedSampler
	model       nn.Module
	loss        lossFunc
	optimizer   *optim.SGD
	ddp         *ddp.DDP
	facts       facts
	plan        plan

	at      position
	resumed int64  // the step that was resumed from, or 0
	saved   int64  // the step of the newest checkpoint, or 0
	path    string // of that checkpoint

	batch      data.Batch
	rows       []int // scratch of evaluate
	evaluation evaluation

	window, epoch meter // since the last line of metrics, and in this epoch
	metricsBroken bool  // it was warned of
	metricsTorn   bool  // the last line has no end
}

// Run trains as cfg says, as one rank of env.Comm; every rank of it calls Run with the same
// cfg. It returns when the epochs are over, when all have agreed to stop (Result.Stopped), or with
// an error, which then every rank gets: its own or, with that rank's number, another's.
//
// A run that was stopped and goes on from its checkpoint takes the same steps, bit for bit, as one that was not.
func Run(ctx context.Context, cfg Config, env Env) (Result, error) {
	if env.Comm == nil {
		return Result{}, errors.New("train: no communicator")
	}
	t := newTrainer(cfg, env)
	if err := t.setUp(ctx); err != nil {
		return Result{}, err
	}
	return t.run(ctx)
}

func newTrainer(cfg Config, env Env) *trainer {
	t := &trainer{cfg: cfg, env: env, now: env.Clock, log: env.Log}
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

// setUp builds everything, so that after it all ranks stand before the same step with the same state.
func (t *trainer) setUp(ctx context.Context) error {
	comm := t.env.Comm
	if err := together(ctx, comm, t.build()); err != nil {
		return err
	}
	digest, err := t.configDigest()
	if err != nil {
		return err
	}
	if err := ddp.Agree(ctx, comm, "training settings or data", digest); err != nil {
		return err
	}
	if err := t.resume(ctx); err != nil {
		return err
	}
	if t.ddp, err = ddp.New(ctx, comm, t.model.Params(), scalars); err != nil {
		return err
	}
	return t.shareOptimizer(ctx)
}

// build makes what a rank can make without the others.
func (t *trainer) build() error {
	if err := t.cfg.Validate(); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	var err error
	if t.train, t.eval, err = openData(t.cfg.Data, t.cfg.Seed, t.env.WorkDir); err != nil {
		return err
	}
	world := t.env.Comm.Size()
	if t.train.Len() < world {
		return fmt.Errorf("%d rows to train on are too few for %d ranks: give each rank at least one, or start fewer ranks", t.train.Len(), world)
	}
	t.sampler, err = data.NewDistributedSampler(data.SamplerConfig{
		Rows: t.train.Len(), World: world, Rank: t.env.Comm.Rank(),
		Seed: t.cfg.Seed, Shuffle: t.cfg.Data.Shuffle,
	})
	if err != nil {
		return err
	}
	if t.model, err = newModel(t.cfg.Model, t.train.Spec(), t.cfg.Seed); err != nil {
		return err
	}
	t.loss = newLoss(t.cfg.Loss)
	t.optimizer, err = optim.NewSGD(t.model.Params(), optim.SGDConfig{LR: t.cfg.Optimizer.LR, Momentum: t.cfg.Optimizer.Momentum})
	t.facts = factsOf(t.cfg, t.train, world)
	return err
}

// configDigest is a hash of all that ranks must have in common.
func (t *trainer) configDigest() ([sha256.Size]byte, error) {
	var eval [sha256.Size]byte
	if t.eval != nil {
		eval = data.Digest(t.eval)
	}
	text, err := json.Marshal([]any{t.cfg, t.facts, eval})
	return sha256.Sum256(text), err
}
