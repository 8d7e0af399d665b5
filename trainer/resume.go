package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
)

// checkpointPolicy is what rank 0 decides about checkpoints for all ranks.
type checkpointPolicy struct {
	Save       bool `json:"save"`
	Resume     bool `json:"resume"`
	EverySteps int  `json:"every_steps"`
	KeepBest   bool `json:"keep_best"`
	AtStart    bool `json:"at_start"`
	Encode     bool `json:"encode"` // the codec is not "none"
	Async      bool `json:"async"`
	Delta      int  `json:"delta"`
}

// agreeOnPolicy sends rank 0's policy to all ranks.
func (t *trainer) agreeOnPolicy(ctx context.Context) (err error) {
	e := &t.env
	t.policy, err = mpi.BroadcastObject(ctx, e.Comm, checkpointPolicy{
		Save: e.Checkpoints != nil, Resume: e.Resume, EverySteps: e.EverySteps, KeepBest: e.KeepBest,
		AtStart: e.AtStart, Encode: e.Checkpoints != nil && e.Checkpoints.Location().Codec != "none", Async: e.Async, Delta: e.Delta,
	}, 0)
	return err
}

// resume resumes from the newest checkpoint, if there is one, or else initializes the model. Then it distributes the rows that are left.
func (t *trainer) resume(ctx context.Context) error {
	begun := false
	if t.policy.Save {
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
	if t.policy.AtStart && !begun {
		if err := t.agreeOnQuickSave(ctx); err != nil {
			return err
		}
		return t.saveAndFinish(ctx)
	}
	return nil
}

// restore lets rank 0 alone choose the checkpoint to resume from, because on a shared file system ranks may see
// different ones. Every rank reads its own part of it. begun reports whether there was one.
func (t *trainer) restore(ctx context.Context) (begun bool, err error) {
	anew, err := t.beginsAnew(ctx)
	if err != nil {
		return false, fmt.Errorf("find out whether the run has begun anew: %w", err)
	}
	if anew {
		return false, t.saver.Begin(ctx)
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
			return fmt.Errorf("%s: %w", c.Info().Path, err)
		}
		t.at, t.path = at, c.Info().Path
		return nil
	})
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		return false, nil
	case errors.Is(err, checkpoint.ErrCorrupt):
		return false, fmt.Errorf("%w; put a good copy back, or start a new run", err)
	case err != nil:
		return false, err
	}
	t.resumed, t.committedStep, t.begunStep, t.evalDue = t.at.Step, t.at.Step, t.at.Step, t.at.EvalDue
	_, t.scored = c.Metrics()[evalLoss]
	cost.find, cost.bytes = t.now().Sub(start)-cost.load, c.Info().Bytes
	t.resuming = cost
	if t.env.Comm.Rank() == 0 {
		t.print("rank 0 | going on after step %d: %s | %v\n", t.at.Step, t.path, &cost)
	}
	if err := c.Close(); err != nil { // it was only read; an error on this rank alone must not separate the ranks
		t.log.Warn("close the checkpoint that was resumed from", "error", err)
	}
	return true, t.keepPinned(ctx)
}

// beginsAnew reports whether this attempt begins without a checkpoint, whatever exists. The user has asked that of one attempt: if it
// applied to later attempts, too, every requeue would discard what the run has done.
func (t *trainer) beginsAnew(ctx context.Context) (bool, error) {
	if t.policy.Resume {
		return false, nil
	}
	return mpi.FromRoot(ctx, t.env.Comm, 0, func() (bool, error) {
		begun, err := t.env.Checkpoints.FirstBegun(max(1, t.env.AnewFrom))
		if begun > 0 {
			t.log.Warn(fmt.Sprintf("begin anew only once: attempt %d has begun already, "+
				"so this one resumes from what was saved since", begun))
		}
		return begun == 0, err
	}, classes...)
}

// keepPinned pins the checkpoint of the best evaluation, if this job still compares by the same; an attempt may have died before it
// could do so.
func (t *trainer) keepPinned(ctx context.Context) error {
	if t.at.Best.Of != t.bestOf() {
		t.at.Best = best{}
	}
	if t.at.Best.Step == 0 {
		return nil
	}
	if err := t.pin(ctx, t.at.Best.Step); err != nil {
		return err
	}
	var err error
	t.bestPath, err = mpi.FromRoot(ctx, t.env.Comm, 0, func() (string, error) {
		c, err := t.env.Checkpoints.Find(ctx, t.at.Best.Step)
		if errors.Is(err, checkpoint.ErrNone) || errors.Is(err, checkpoint.ErrCorrupt) { // pin has said so
			return "", nil
		}
		if err != nil {
			return "", err
		}
		defer c.Close()
		return c.Info().Path, nil
	}, classes...)
	return err
}

// pin pins the checkpoint of a step as that of the best evaluation, unless somebody has removed it.
func (t *trainer) pin(ctx context.Context, step int64) error {
	_, err := mpi.FromRoot(ctx, t.env.Comm, 0, func() (struct{}, error) {
		err := t.env.Checkpoints.Pin(ctx, step, bestLabel)
		if errors.Is(err, checkpoint.ErrNone) || errors.Is(err, checkpoint.ErrCorrupt) {
			t.log.Warn("checkpoint of the best evaluation no longer exists", "step", step, "error", err)
			err = nil
		}
		return struct{}{}, err
	}, classes...)
	return err
}

// positionOf returns the position at which c was saved, if this job can resume from it.
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

// tensors holds the tensors of a checkpoint, by name.
type tensors map[string]checkpoint.TensorInfo

func tensorsOf(c *checkpoint.Checkpoint) tensors {
	all := tensors{}
	for _, i := range c.Tensors() {
		all[i.Name] = i
	}
	return all
}

// readState fills this rank's arrays from c. Each must exist there and fit, and c must not hold an array that no rank has; otherwise
// nothing is changed. wanted are the names of all ranks' arrays.
func (t *trainer) readState(ctx context.Context, c *checkpoint.Checkpoint, wanted []string) error {
	saved, own := tensorsOf(c), t.arrays()
	if err := checkArrays(own, saved); err != nil {
		return err
	}
	if err := checkUnwanted(saved, wanted); err != nil {
		return err
	}
	others := saved.replicas() != t.topology.replicas
	var targets []checkpoint.Target
	for _, a := range own {
		_, _, hook := parseHookName(a.Name)
		if _, there := saved[a.Name]; there && !(hook && others) {
			targets = append(targets, checkpoint.Target{Name: a.Name, Data: bytesOf(a.value)})
		}
	}
	if err := c.Read(ctx, targets); err != nil {
		return err
	}
	if others {
		return t.readResiduals(ctx, c, saved)
	}
	return nil
}

// wantedNames returns the names of the arrays of all ranks, sorted. It is collective.
func (t *trainer) wantedNames(ctx context.Context) ([]string, error) {
	var own []string
	for _, a := range t.arrays() {
		own = append(own, a.Name)
	}
	lists, err := mpi.GatherObject(ctx, t.env.Comm, own, 0)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	return mpi.BroadcastObject(ctx, t.env.Comm, slices.Compact(all), 0)
}

// checkArrays returns an error unless every array of this rank is in saved, in its shape.
func checkArrays(own []stateArray, saved tensors) error {
	for _, a := range own {
		there, ok := saved[a.Name]
		switch {
		case !ok && strings.HasPrefix(a.Name, hookPrefix): // of a replica that did not exist: see readResiduals
		case !ok:
			return fmt.Errorf("%w: it has no %s", ErrMismatch, a.Name)
		case there.DType != "float32":
			return fmt.Errorf("%w: %s is %s, not float32", ErrMismatch, a.Name, there.DType)
		case !slices.Equal(there.Shape, a.Shape):
			return fmt.Errorf("%w: %s is %v in the checkpoint and %v here", ErrMismatch, a.Name, there.Shape, a.Shape)
		}
	}
	return nil
}

// checkUnwanted returns an error if saved has an array that no rank has.
func checkUnwanted(saved tensors, wanted []string) error {
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		if _, found := slices.BinarySearch(wanted, name); !found && !strings.HasPrefix(name, hookPrefix) {
			return fmt.Errorf("%w: it has %s, which this job does not", ErrMismatch, name)
		}
	}
	return nil
}
