package main

import (
	"context"

	"ddpbatch/internal/exposition"
	"ddpbatch/mpi/launch"
)

// expose begins to serve the job's metrics for monitoring, if the job asks for that and this is agent 0. The returned function ends it.
func expose(ctx context.Context, e *env, w *workers, cfg *launch.AgentConfig) (end func()) {
	listen, err := launch.ParseListen(w.launch.MetricsListen)
	if err != nil {
		cfg.Log.Warn("the run's metrics are not available to monitoring", "error", err)
	}
	if w.run == nil || cfg.Index != 0 || cfg.Reject != nil || w.launch.MetricsDir == "" && !listen.IsValid() {
		return func() {}
	}
	id := cfg.JobID
	if w.run.Spec().Kind != "slurm" { // the ID of a simulated job is a process ID, and may be that of a real job
		id = ""
	}
	return exposition.Start(ctx, exposition.Config{
		Labels: exposition.Labels{Job: w.run.Spec().Name, ID: id, Run: runName(w.run)},
		Dir:    w.run, Folder: w.launch.MetricsDir, Listen: listen,
		Log: cfg.Log, Note: func(format string, args ...any) { note(e, format, args...) },
	})
}
