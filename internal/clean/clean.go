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

// Cleaner removes runs from a folder.
type Cleaner struct {
	Env    submission.Env
	View   *runview.Viewer
	Runs   string        // the folder
	Older  time.Duration // the least time since anything happened to the run
	States []string      // states of runs, in lower case, as status shows them; empty: all
}

// Run is a run that may be removed.
type Run struct {
	Dir   *rundir.Dir
	Job   string
	State string
	Last  time.Time // when something happened to it last
	Bytes int64
}

// Choose returns the caller's own runs that have ended and match. A run whose state is unknown does not match.
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
		last, err := all[i].LastChange()
		if err != nil || c.Env.Now().Sub(last) < c.Older {
			continue // without its ledger the state of a run is unknown
		}
		chosen = append(chosen, Run{all[i], row.Job, row.State, last, all[i].Size()})
	}
	return chosen, nil
}

// hasEnded reports whether a run is known to have ended and will not go on unless somebody resumes it. If Slurm does not report the job,
// for example because its commands are not on this machine, and the ledger expects Slurm to start a job, the run has not ended.
func hasEnded(row runview.RunStatus) bool {
	return row.Failed == nil && row.Ended && !row.Simulated && row.State != "UNKNOWN" && (row.Reported || !row.Expected)
}

// atOnce is how many runs are claimed and checked together before they are removed: so few that little time passes in between.
const atOnce = 32

// Remove removes runs that Choose has found. It claims each run, so that no other command submits it meanwhile, and checks their states
// again. It returns the runs that it has removed; the error names the others.
func (c *Cleaner) Remove(ctx context.Context, chosen []Run) (gone []Run, failed error) {
	for some := range slices.Chunk(chosen, atOnce) {
		if ctx.Err() != nil {
			return gone, errors.Join(failed, context.Cause(ctx))
		}
		removed, err := c.remove(ctx, some)
		gone, failed = append(gone, removed...), errors.Join(failed, err)
	}
	return gone, failed
}

func (c *Cleaner) remove(ctx context.Context, chosen []Run) (gone []Run, failed error) {
	stays := func(run Run, why any) {
		failed = errors.Join(failed, fmt.Errorf("%s stays: %v", run.Dir.Path(), why)) // %v: the error must not set the exit code of clean
	}
	var claimed []Run
	var dirs []*rundir.Dir
	var claims []*rundir.Claim
	for _, run := range chosen {
		release, claim, err := c.Env.Claim(run.Dir, "clean")
		if err != nil {
			stays(run, err)
			continue
		}
		defer release()
		claimed, dirs, claims = append(claimed, run), append(dirs, run.Dir), append(claims, claim)
	}
	rows, err := c.View.Statuses(ctx, dirs)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	for i, run := range claimed {
		lost := submission.CheckClaim(claims[i]) // this process may have been stopped for a while
		switch row := rows[i]; {
		case ctx.Err() != nil:
			return gone, errors.Join(failed, context.Cause(ctx))
		case lost != nil:
			stays(run, lost)
		case row.Failed != nil:
			stays(run, row.Failed)
		case !hasEnded(row):
			stays(run, "its state is now "+row.State)
		default:
			if err := run.Dir.Remove(); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			gone = append(gone, run)
		}
	}
	return gone, failed
}

// RemoveLeft removes the rest of runs that earlier commands have removed only in part.
func (c *Cleaner) RemoveLeft() error {
	left, err := rundir.LeftRemovals(c.Runs)
	for _, path := range left {
		err = errors.Join(err, rundir.RemoveLeft(path))
	}
	return err
}
