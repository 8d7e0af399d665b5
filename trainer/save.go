package trainer

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
)

// plan is what rank 0 decides about checkpoints for all.
type plan struct {
	Save       bool     `json:"save"`
	EverySteps int      `json:"every_steps"`
	Resumed    bool     `json:"resumed"`
	At         position `json:"at"`   // where to go on, if resumed
	Path       string   `json:"path"` // of the checkpoint, if resumed
}

// planResume has rank 0, and only rank 0, choose and read the checkpoint to go on from: on a shared file
// system, ranks may see different ones. Rank 0 gets it, if there is one.
func (t *trainer) planResume(ctx context.Context) (*checkpoint.State, error) {
	var state *checkpoint.State
	p, err := onRank0(ctx, t.env.Comm, func() (p plan, err error) {
		p, state, err = t.makePlan(ctx)
		return p, err
	})
	if err != nil {
		return nil, err
	}
	if p.At.Best.Of != t.bestOf() {
		p.At.Best = best{}
	}
	t.plan, t.at = p, p.At
	if p.Resumed {
		t.resumed, t.saved, t.path = p.At.Step, p.At.Step, p.Path
	}
	t.checked = t.at.Step
	return state, nil
}

// resume gives all ranks what rank 0 has read, and deals out the rows that are left.
func (t *trainer) resume(ctx context.Context, state *checkpoint.State) error {
	if t.plan.Resumed {
		var tensors []checkpoint.Tensor
		if state != nil {
			tensors = state.Tensors
		}
		if err := t.spread(ctx, tensors); err != nil {
			return fmt.Errorf("resume from %s: %w", t.plan.Path, err)
		}
	}
	t.dealEpoch()
	var err error
	t.schedule, err = newSchedule(t.cfg.Schedule, t.cfg.Optimizer.LR, t.totalSteps())
	return err
}

// makePlan is rank 0's. It also returns the checkpoint to go on from, if there is one.
func (t *trainer) makePlan(ctx context.Context) (plan, *checkpoint.State, error) {
	dir := t.env.Checkpoints
	p := plan{Save: dir != nil, EverySteps: t.env.EverySteps}
	if dir == nil || !t.env.Resume {
		return p, nil, nil
	}
	s, info, err := dir.Latest(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		return p, nil, nil
	case errors.Is(err, checkpoint.ErrCorrupt):
		return p, nil, fmt.Errorf("resume: %w; put a good copy back, or start a new run", err)
	case err != nil:
		return p, nil, fmt.Errorf("resume: %w", err)
	}
	if p.At, err = t.positionOf(s); err != nil {
		return p, nil, fmt.Errorf("resume from %s: %w", info.Path, err)
	}
	if p.At.Best.Step > 0 && p.At.Best.Of == t.bestOf() {
		dir.Pin(p.At.Best.Step)
	}
	p.Resumed, p.Path = true, info.Path
	return p, s, nil
}

// positionOf is where s was saved, if this job can go on from there.
func (t *trainer) positionOf(s *checkpoint.State) (position, error) {
	var saved facts
	var at position
	if err := readValue(s, keyFacts, &saved); err != nil {
		return at, err
	}
	if d := t.facts.differences(saved, "in the checkpoint"); d != "" {
		return at, fmt.Errorf("%w: %s; change the job back, or start a new run", ErrMismatch, d)
	}
	if err := readValue(s, keyPosition, &at); err != nil {
		return at, err
	}
	for _, tensor := range s.Tensors {
		if tensor.DType != "float32" {
			return at, fmt.Errorf("%w: %s is %s, not float32", ErrMismatch, tensor.Name, tensor.DType)
		}
	}
	return at, at.validate(s)
}

// due says whether a checkpoint belongs after the steps taken since the last one.
func (t *trainer) due() bool {
	every := int64(t.plan.EverySteps)
	return every > 0 && t.at.Step/every > max(t.saved, t.resumed)/every
}

// save commits a checkpoint of this step, unless there is one and force is false: all ranks meet, rank 0 writes,
// all learn how it went, all meet again. An error is every rank's.
func (t *trainer) save(ctx context.Context, force bool) error {
	if !t.plan.Save || t.saved == t.at.Step && !force {
		return nil
	}
	if err := together(ctx, t.env.Comm, t.checkFinite()); err != nil {
		return err
	}
	if err := t.env.Comm.Barrier(ctx); err != nil {
		return fmt.Errorf("meet before the checkpoint of step %d: %w", t.at.Step, err)
	}
	tensors, err := t.collect(ctx)
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", t.at.Step, err)
	}
	path, err := onRank0(ctx, t.env.Comm, func() (string, error) {
		values, err := t.values()
		if err != nil {
			return "", err
		}
		info, err := t.env.Checkpoints.Save(ctx, &checkpoint.State{
			Step: t.at.Step, World: t.env.Comm.Size(), Tensors: tensors, Values: values,
		})
		return info.Path, err
	})
	if err != nil {
		return fmt.Errorf("save the checkpoint of step %d: %w", t.at.Step, err)
	}
	if err := t.env.Comm.Barrier(ctx); err != nil {
		return fmt.Errorf("meet after the checkpoint of step %d: %w", t.at.Step, err)
	}
	t.saved, t.path = t.at.Step, path
	return nil
}

// checkFinite refuses to save a state that no training can go on from.
func (t *trainer) checkFinite() error {
	for _, a := range t.arrays() {
		for _, v := range a.value {
			if !finite(float64(v)) {
				return t.diverged(t.at.Step, fmt.Sprintf("%s holds %v", a.Name, v))
			}
		}
	}
	return nil
}
