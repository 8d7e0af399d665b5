package trainer

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/mpi"
)

// plan is what rank 0 decides about checkpoints for all.
type plan struct {
	Save       bool `json:"save"`
	Resume     bool `json:"resume"`
	EverySteps int  `json:"every_steps"`
	KeepBest   bool `json:"keep_best"`
	AtStart    bool `json:"at_start"`
	Encode     bool `json:"encode"` // the codec is not "none"
	Async      bool `json:"async"`
	Delta      int  `json:"delta"`
}

// makePlan gives all ranks rank 0's plan.
func (t *trainer) makePlan(ctx context.Context) (err error) {
	e := &t.env
	t.plan, err = mpi.BroadcastObject(ctx, e.Comm, plan{
		Save: e.Checkpoints != nil, Resume: e.Resume, EverySteps: e.EverySteps, KeepBest: e.KeepBest,
		AtStart: e.AtStart, Encode: e.Checkpoints != nil && e.Checkpoints.Place().Codec != "none", Async: e.Async, Delta: e.Delta,
	}, 0)
	return err
}

// resume goes on from the newest checkpoint, where there is one, or else begins; then it deals out the rows that are left.
func (t *trainer) resume(ctx context.Context) error {
	begun := false
	if t.plan.Save {
		if err := t.newSaver(ctx); err != nil {
			return fmt.Errorf("prepare to save checkpoints: %w", err)
		}
		var err error
		if begun, err = t.restore(ctx); err != nil {
			return err
		}
	}
	if !begun {
		if err := t.initialize(ctx); err != nil {
			return err
		}
	}
	t.checked = t.at.Step
	t.dealEpoch()
	var err error
	if t.schedule, err = newSchedule(t.cfg.Schedule, t.cfg.Optimizer.LR, t.totalSteps()); err != nil {
		return err
	}
	if t.plan.AtStart && !begun {
		if err := t.agreeOnHaste(ctx); err != nil {
			return err
		}
		return t.saveAndFinish(ctx)
	}
	return nil
}

func (t *trainer) newSaver(ctx context.Context) error {
	own, err := newGroup(ctx, t.env.Comm)
	if err != nil {
		return err
	}
	dir := t.env.Checkpoints
	if own.Rank() != 0 {
		dir = nil
	}
	arrays := t.savedArrays()
	bytes, err := t.totalBytes(ctx, arrays)
	if err != nil {
		return err
	}
	t.guess, t.cost.since = guessSave(bytes), t.now()
	memory := t.env.MaxMemory
	if memory > 0 {
		memory = max(1, memory-t.hookBytes())
	}
	o := distributed.Options{
		Async: t.plan.Async, Delta: t.plan.Delta, MaxMemory: memory, Workers: max(1, t.env.Threads), Local: t.env.Local, Node: t.env.Node,
		Check: t.checkSaved, Errors: []error{ErrDiverged, ErrMismatch}, FS: t.env.FS, Log: t.log,
	}
	if t.env.Replicate {
		if o.Peers, err = newPeers(ctx, t.env.Comm); err != nil {
			return err
		}
	}
	if t.plan.Encode {
		if o.Workers, err = t.encoders(o); err != nil {
			err = fmt.Errorf("encode: %w", err)
		}
		if err := together(ctx, t.env.Comm, err); err != nil {
			return err
		}
	}
	if dir != nil {
		dir.SetWorkers(o.Workers)
	}
	t.saver, err = distributed.New(ctx, own, dir, arrays, o)
	return t.elsewhere(err)
}

// LeastMemory is how many bytes Env.MaxMemory must allow at least, where it is not 0 and checkpoints are encoded. What a hook of ddp.compress
// keeps comes on top. replicate: there is Env.Peers.
func LeastMemory(replicate bool) int64 {
	return distributed.LeastMemory(replicate)
}

// encoders is how many threads of this rank may encode, of those that it has.
func (t *trainer) encoders(o distributed.Options) (int, error) {
	n, least := o.Encoders()
	if n > 0 {
		return n, nil
	}
	const mega = 1 << 20
	least += t.hookBytes()
	return 0, fmt.Errorf("%.1fM of memory may be used, and one thread takes %.1fM, with what ddp.compress keeps: raise checkpoint.memory to %dM or more, or leave it out",
		float64(t.env.MaxMemory)/mega, float64(least)/mega, (least+mega-1)/mega)
}

// restore has rank 0, and only rank 0, choose the checkpoint to go on from: on a shared file system, ranks may see
// different ones. Every rank reads its own part of it. It tells whether there was one.
func (t *trainer) restore(ctx context.Context) (begun bool, err error) {
	anew, err := t.beginsAnew(ctx)
	if err != nil {
		return false, fmt.Errorf("look whether the run has begun anew: %w", err)
	}
	if anew {
		return false, t.elsewhere(t.saver.Begin(ctx))
	}
	wanted, err := t.wantedNames(ctx)
	if err != nil {
		return false, fmt.Errorf("resume: %w", err)
	}
	start, cost := t.now(), resumeCost{}
	c, err := t.saver.Resume(ctx, func(c *checkpoint.Checkpoint) error {
		found := t.now()
		at, err := t.positionOf(c)
		if err == nil {
			err = t.readState(ctx, c, wanted)
		}
		cost.load = t.now().Sub(found)
		if err != nil {
			return fmt.Errorf("resume from %s: %w", c.Info().Path, err)
		}
		t.at, t.path = at, c.Info().Path
		return nil
	})
	switch err = t.elsewhere(err); {
	case errors.Is(err, checkpoint.ErrNone):
		return false, nil
	case errors.Is(err, checkpoint.ErrCorrupt):
		return false, fmt.Errorf("%w; put a good copy back, or start a new run", err)
	case err != nil:
		return false, err
	}
	t.resumed, t.saved, t.asked = t.at.Step, t.at.Step, t.at.Step
	_, t.scored = c.Metrics()[evalLoss]
	cost.find, cost.bytes = t.now().Sub(start)-cost.load, c.Info().Bytes
	t.resuming = cost
	if t.env.Comm.Rank() == 0 {
		t.print("rank 0 | going on after step %d: %s | %v\n", t.at.Step, t.path, &cost)
	}
	if err := c.Close(); err != nil { // it was only read, and an error of this rank alone must not part the ranks
		t.log.Warn("close the checkpoint that was resumed from", "error", err)
	}
	return true, t.keepPinned(ctx)
}

// beginsAnew says whether this attempt is to go on from nothing, whatever there is. That was asked of one attempt: where it held for those
// that come after it, too, every requeue would throw away what the run has done.
func (t *trainer) beginsAnew(ctx context.Context) (bool, error) {
	if t.plan.Resume {
		return false, nil
	}
	return onRank0(ctx, t.env.Comm, func() (bool, error) {
		begun, err := t.env.Checkpoints.FirstBegun(max(1, t.env.AnewFrom))
		if begun > 0 {
			t.log.Info(fmt.Sprintf("begin anew only once: attempt %d has begun already, so this one goes on from what was saved since", begun))
		}
		return begun == 0, err
	})
}

// keepPinned has the checkpoint of the best evaluation stay, where this job still compares by the same; an attempt may have died before it
// could say so.
func (t *trainer) keepPinned(ctx context.Context) error {
	if t.at.Best.Of != t.bestOf() {
		t.at.Best = best{}
	}
	if t.at.Best.Step == 0 {
		return nil
	}
	return t.pin(ctx, t.at.Best.Step)
}

// pin has the checkpoint of a step stay as that of the best evaluation, unless somebody has removed it.
func (t *trainer) pin(ctx context.Context, step int64) error {
	_, err := onRank0(ctx, t.env.Comm, func() (struct{}, error) {
		err := t.env.Checkpoints.Pin(ctx, step, bestLabel)
		if errors.Is(err, checkpoint.ErrNone) || errors.Is(err, checkpoint.ErrCorrupt) {
			t.log.Warn("the checkpoint of the best evaluation is gone", "step", step, "error", err)
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// positionOf is where c was saved, if this job can go on from there.
func (t *trainer) positionOf(c *checkpoint.Checkpoint) (position, error) {
	var saved facts
	var at position
	if err := readValue(c, keyFacts, &saved); err != nil {
		return at, err
	}
	if err := t.facts.fits(saved); err != nil {
		return at, err
	}
	if err := readValue(c, keyPosition, &at); err != nil {
		return at, err
	}
	return at, at.validate(c.Step())
}
