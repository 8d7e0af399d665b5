package main

import (
	"path/filepath"
	"strconv"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/usage"
)

// defaultSteps is how many steps a rehearsal takes at most where nobody says: some to be interrupted in, with checkpoints before and
// after, and no more, as days of training prove no more than these do.
const defaultSteps = 500

// shorten has both runs end early, at the same step. Only the built-in trainer can be told to.
func (r *rehearsal) shorten() error {
	job, _, err := jobfile.Parse(filepath.Base(r.source.path), filepath.Dir(r.source.path), r.source.text, r.source.sets)
	if err != nil {
		return nil // the first run says it
	}
	steps := r.steps
	switch {
	case !job.Builtin() && steps > 0:
		return &usage.Error{Message: "--steps shortens the built-in trainer's jobs alone", Hint: "give your own program fewer steps by its own flags"}
	case !job.Builtin() || steps == 0 && job.Train.MaxSteps > 0: // the job's own say
		r.steps = 0
		return nil
	case steps == 0:
		steps = defaultSteps
		for _, f := range r.pretend.Faults {
			steps = max(steps, 2*f.Step)
		}
	}
	r.steps = steps
	r.source.sets = append(r.source.sets[:len(r.source.sets):len(r.source.sets)], "train.max_steps="+strconv.FormatInt(steps, 10))
	return nil
}
