package main

import (
	"context"

	"ddpbatch/internal/exposition"
	"ddpbatch/mpi/launch"
)

// expose begins to show monitoring how a job gets on, where it asks for that and this is agent 0. The result ends it.
func expose(ctx context.Context, e *env, w *workers, cfg *launch.AgentConfig) (end func()) {
	listen, err := launch.ParseListen(w.launch.MetricsListen)
	if err != nil {
		cfg.Log.Warn("nobody can ask for the run's metrics", "error", err)
	}
	if w.run == nil || cfg.Index != 0 || cfg.Reject != nil || w.launch.MetricsDir == "" && !listen.IsValid() {
		return func() {}
	}
	id := cfg.JobID
	if w.run.Spec().Kind != "slurm" { // that of a simulated job is a process's, and may be a real job's, too
		id = ""
	}
	return exposition.Start(ctx, exposition.Config{
		Labels: exposition.Labels{Job: w.run.Spec().Name, ID: id, Run: runName(w.run)},
		Dir:    w.run, Folder: w.launch.MetricsDir, Listen: listen,
		Log: cfg.Log, Note: func(format string, args ...any) { note(e, format, args...) },
	})
}
