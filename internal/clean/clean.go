package clean

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/submission"
)

// Cleaner removes runs of a folder.
type Cleaner struct {
	Env    submission.Env
	View   *runview.Viewer
	Runs   string        // the folder
	Older  time.Duration // since anything happened to the run
	States []string      // of runs, as status shows them; none: all
}

// Run is one that may go.
type Run struct {
	Dir   *rundir.Dir
	Job   string
	State string
	Last  time.Time // when something happened to it last
	Bytes int64
}

// Choose finds the caller's own runs that have ended, and match. One whose state nobody can tell never does.
func (c *Cleaner) Choose(ctx context.Context) (chosen []Run, err error) {
	all, err := rundir.List(c.Runs)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d *rundir.Dir) bool { return !d.IsOwn() })
	rows, err := c.View.Statuses(ctx, all)
	if err != nil {
		return nil, err
	}
	for i, row := range rows {
		if !hasEnded(row) || len(c.States) > 0 && !slices.Contains(c.States, strings.ToLower(row.State)) {
			continue
		}
		last, err := all[i].LastEvent()
		if err != nil || c.Env.Now().Sub(last) < c.Older {
			continue // who cannot read a ledger knows nothing of its run
		}
		chosen = append(chosen, Run{all[i], row.Job, row.State, last, all[i].Size()})
	}
	return chosen, nil
}

// hasEnded reports whether a run is known to have ended, for good as far as nobody resumes it.
func hasEnded(row runview.RunStatus) bool {
	return row.Failed == nil && row.Ended && !row.Simulated && row.State != "UNKNOWN"
}

// Remove removes runs that Choose has found. It claims each, so that no other command submits it meanwhile, and asks for their states
// once more. It returns those that are gone; the error names the others.
func (c *Cleaner) Remove(ctx context.Context, chosen []Run) (gone []Run, failed error) {
	var claimed []Run
	var dirs []*rundir.Dir
	var releases []func()
	for _, run := range chosen {
		release, _, err := c.Env.Claim(run.Dir, "clean")
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s stays: %w", run.Dir.Path(), err))
			continue
		}
		claimed, dirs, releases = append(claimed, run), append(dirs, run.Dir), append(releases, release)
	}
	rows, err := c.View.Statuses(ctx, dirs)
	for i, run := range claimed {
		switch {
		case err == nil && ctx.Err() == nil && !hasEnded(rows[i]):
			failed = errors.Join(failed, fmt.Errorf("%s stays: its state is %s by now", run.Dir.Path(), rows[i].State))
		case err == nil && ctx.Err() == nil:
			if removeErr := run.Dir.Remove(); removeErr != nil {
				failed = errors.Join(failed, removeErr)
				break
			}
			gone = append(gone, run)
		}
		releases[i]()
	}
	return gone, errors.Join(failed, err, context.Cause(ctx))
}

// RemoveLeft removes what commands before this one have left half removed.
func (c *Cleaner) RemoveLeft() error {
	left, err := rundir.LeftRemovals(c.Runs)
	for _, path := range left {
		err = errors.Join(err, rundir.RemoveLeft(path))
	}
	return err
}
