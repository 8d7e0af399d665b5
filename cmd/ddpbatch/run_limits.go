package main

import (
	"os"

	"ddpbatch/internal/proc"
)

// raiseLimits gives the workers all that an administrator lets them have: what was in force where the job was submitted comes along
// (sbatch(1), --propagate), and 1,024 open files are few for a data loader.
func raiseLimits(e *env) {
	raised, warnings, err := proc.RaiseLimits()
	for _, r := range raised {
		e.log().Debug("raised a limit", "of", r.Name, "from", r.From, "to", r.To)
	}
	// too little locked memory matters to InfiniBand alone
	if adapters, _ := os.ReadDir("/sys/class/infiniband"); len(adapters) > 0 {
		for _, text := range warnings {
			e.log().Warn(text)
		}
	}
	if err != nil {
		e.log().Warn("limits stay as they are", "error", err)
	}
}
