package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/vfs"
)

// refuseUnsure refuses to write to a folder that may belong to a run, because the run's attempt may be writing to it.
func (p ckptPlace) refuseUnsure(e *env) error {
	if p.unsure == nil {
		return nil
	}
	return &usageError{
		message: fmt.Sprintf("it cannot be told whether %s belongs to a run that is going on: %v", e.short(p.path), p.unsure),
		hint:    "mend what cannot be read, or copy the checkpoints elsewhere",
	}
}

// checkOwn returns vfs.ErrExposed if the checkpoints belong to another user, or if another user could exchange them while they are
// removed. name is what the user typed. It may be a link of another user that leads to a run of the caller's own.
func (p ckptPlace) checkOwn(e *env, name string) error {
	if err := vfs.CheckLinks(e.abs(name)); errors.Is(err, vfs.ErrExposed) {
		return fmt.Errorf("%w; name the folder itself", err)
	}
	if p.run != nil {
		return checkOwn(e, p.run)
	}
	info, err := os.Stat(p.path)
	if err != nil {
		return err
	}
	return vfs.CheckOwner(p.path, info)
}

// refuseAlive refuses to remove checkpoints of a run that may be writing its own; way is what to do where nobody can tell.
func refuseAlive(ctx context.Context, e *env, run *rundir.Dir, way string) error {
	if run == nil {
		return nil
	}
	row, err := statusOf(ctx, e, run)
	if err != nil {
		return err
	}
	name := row.Job
	if name == "" {
		name = e.short(run.Path())
	}
	switch {
	case !row.ended:
		return usagef("job %s is still %s; wait for its end, or cancel it: ddpbatch cancel %s", name, row.State, name)
	case row.Attempt > 0 && row.Exit == nil && row.verdictJob == "":
		return usagef("attempt %d of %s has left no verdict, so it may still run; %s", row.Attempt, name, way)
	}
	return nil
}

// openToWrite opens the folder in the name of its run's newest attempt; a newer one that begins meanwhile stops what is being done. A folder
// that belongs to no run directory, as one of imported or copied checkpoints, is opened in the name of the run that all in it are of.
func (p ckptPlace) openToWrite(ctx context.Context, e *env) (*checkpoint.Dir, error) {
	options := checkpoint.Options{Log: e.log()}
	if err := p.refuseUnsure(e); err != nil {
		return nil, err
	}
	if p.run == nil {
		var err error
		if options.Run, err = p.onlyRun(ctx, e); err != nil {
			return nil, err
		}
		return checkpoint.Open(p.path, options)
	}
	attempt, err := p.run.NewestAttempt()
	if err != nil {
		return nil, err
	}
	options.Run, options.Attempt = p.run.Spec().Run, attempt
	options.Fence = func() error { return p.run.Fence(attempt) }
	return checkpoint.Open(p.path, options)
}

// onlyRun is the run that all checkpoints in the folder are of; empty where there are none.
func (p ckptPlace) onlyRun(ctx context.Context, e *env) (string, error) {
	dir, err := p.open(e)
	if err != nil {
		return "", err
	}
	infos, err := dir.List(ctx)
	if err != nil {
		return "", err
	}
	run, known := "", false
	for _, info := range infos {
		switch {
		case info.Attempt == 0 && info.Run == "" && info.World == 0: // no manifest that can be read
		case known && info.Run != run:
			return "", usagef("%s holds checkpoints of several runs: %q and %q", e.short(p.path), run, info.Run)
		default:
			run, known = info.Run, true
		}
	}
	return run, nil
}
