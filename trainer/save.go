package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
)

// plan is what rank 0 decides about checkpoints for all.
type plan struct {
	Save       bool     `json:"save"`
	EverySteps int      `json:"every_steps"`
	Resumed    bool     `json:"resumed"`
	At         position `json:"at"`   // where to go on, if resumed
	Path       string   `json:"path"` // of the checkpoint, if resumed
}

// resume has rank 0, and only rank 0, choose and read the checkpoint to go on from: on a shared file
// system, ranks may see different ones. Parameters reach the others when the model is wrapped, and
// the optimizer's state by shareOptimizer.
func (t *trainer) resume(ctx context.Context) error {
	p, err := onRank0(ctx, t.env.Comm, func() (plan, error) { return t.makePlan(ctx) })
	if err != nil {
		return err
	}
	t.plan, t.at = p, p.At
	if p.Resumed {
		t.resumed, t.saved, t.path = p.At.Step, p.At.Step, p.Path
		if t.env.Comm.Rank() == 0 {
			t.log.Info("resumed from a checkpoint", "step", p.At.Step, "path", p.Path)
		}
	}
	return nil
}

func (t *trainer) makePlan(ctx context.Context) (plan, error) {
	dir := t.env.Checkpoints
	p := plan{Save: dir != nil, EverySteps: t.env.EverySteps}
	if dir == nil || !t.env.Resume {
		return p, nil
	}
	s, info, err := dir.Latest(ctx)
	if errors.Is(err, checkpoint.ErrNone) {
		return p, nil
	}
	if errors.Is(err, checkpoint.ErrCorrupt) {
		return p, fmt.Errorf("resume: %w; put a good copy back, or start a new run", err)
	}
	if err != nil {
		return p, fmt.Errorf("resume: %w", err)
	}
	if err := t.restore(s); err != nil {
		return p, fmt.Errorf("resume from %s: %w", info.Path, err)
	}
	p.Resumed, p.At, p.Path = true, t.at, info.Path
	return p, nil
}

// shareOptimizer gives all ranks rank 0's state of the optimizer.
func (t *trainer) shareOptimizer(ctx context.Context) error {
	for _, slot := range t.optimizer.State() {
		if err := mpi.Broadcast(ctx, t.env.Comm, slot.Value, 0); err != nil {
			return fmt.Errorf("broadcast %s: %w", slot.Name, err)
		}
	}
	return nil
}

// due says whether a checkpoint belongs after the step just taken.
func (t *trainer) due() bool {
	return t.plan.EverySteps > 0 && t.at.Step%int64(t.plan.EverySteps) == 0
}

// save commits a checkpoint of this step, unless there is one: all ranks meet, rank 0 writes,
// all learn how it went, all meet again. An error is every rank's.
func (t *trainer) save(ctx context.Context) error {
	if !t.plan.Save || t.saved == t.at.Step {
		return nil
	}
	if err := t.checkFinite(); err != nil {
		return err
	}
	if err := t.env.Comm.Barrier(ctx); err != nil {
		return fmt.Errorf("meet before the checkpoint of step %d: %w", t.at.Step, err)
	}
	path, err := onRank0(ctx, t.env.Comm, func() (string, error) {
		s, err := t.state()
		if err != nil {
			return "", err
		}
		info, err := t.env.Checkpoints.Save(ctx, s)
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

// checkFinite refuses to save a state that no training can go on from. Ranks hold the same bits, and
// come to the same result.
func (t *trainer) checkFinite() error {
	for _, a := range t.arrays() {
		for _, v := range a.value {
			if v64 := float64(v); math.IsNaN(v64) || math.IsInf(v64, 0) {
				return t.diverged(t.at.Step, fmt.Sprintf("%s holds %v", a.name, v))
			}
		}
	}
	return nil
}
