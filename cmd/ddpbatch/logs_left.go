package main

import (
	"context"
	"fmt"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// goesOn is the error of who stops watching a job: nothing happens to that, and here is how to come back to it.
func goesOn(ctx context.Context, e *env, run *rundir.Dir, id string) error {
	name := jobName(e, run, id)
	return fmt.Errorf("%w; job %s goes on\nwatch: ddpbatch logs -f %s\ncancel: ddpbatch cancel %s", context.Cause(ctx), id, name, name)
}

// jobName is what a person types for a job: its id where the commands find that, or else its run directory.
func jobName(e *env, run *rundir.Dir, id string) string {
	if found, err := rundir.Find(e.abs("runs"), id); err == nil && found.Path() == run.Path() {
		return id
	}
	return slurm.ShellQuote(e.short(run.Path()))
}
