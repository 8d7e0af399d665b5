package trainer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
)

// A save in the background has failed, and the disk takes the next one: in the middle, at a stop, at the end, and where
// the one that failed was to stay, as that of the best evaluation.
func TestASaveMakesUpForOneThatFailed(t *testing.T) {
	for name, test := range map[string]struct {
		word   string // of the paths that the disk does not take
		change func(cfg *Config)
		want   []int64 // nil: none, and an error
	}{
		"in the middle":       {stepName(4), func(cfg *Config) { cfg.Epochs = 2 }, []int64{8, 12, 14}},
		"at a stop":           {stepName(4), func(*Config) {}, []int64{5}},
		"at the end":          {stepName(4), func(*Config) {}, []int64{7}},
		"the best evaluation": {stepName(5), func(cfg *Config) { cfg.Evaluate.EverySteps, cfg.Evaluate.Best = 5, "loss" }, []int64{4, 7}},
		"never again":         {"shard", func(*Config) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, log := newCheckpoints(), testkit.Journal{}
			stop, progress := stopAfter(4)
			for i, r := range train(t, 2, small(2, 1, 7), func(rank int, cfg *Config, env *Env) {
				full := fullAt(c, test.word)
				env.Checkpoints, env.FS, env.EverySteps, env.Async = checkpoints{full}.open(t), full, 4, true
				if test.change(cfg); rank == 0 {
					env.Log = log.Logger()
					if name == "at a stop" {
						env.Stop, env.Progress = stop, progress
					}
				}
			}) {
				if test.want == nil && !errors.Is(r.err, checkpoint.ErrNoSpace) || test.want != nil && r.err != nil {
					t.Errorf("rank %d: %v", i, r.err)
				}
			}
			if got := c.steps(t); !slices.Equal(got, test.want) {
				t.Errorf("checkpoints of steps %v, want %v", got, test.want)
			}
			if n := strings.Count(log.String(), "trying once more"); n != 1 {
				t.Errorf("%d warnings, want one:\n%s", n, log.String())
			}
		})
	}
}

// An evaluation that falls on a step whose checkpoint is due makes that checkpoint, and so does one that is made again after a resume from there.
func TestTheDueCheckpointKnowsItsEvaluation(t *testing.T) {
	cfg := evaluatedJob(2, 6, 3)
	cfg.Evaluate.EveryEpochs, cfg.Evaluate.Best = 1, "loss"
	cfg.Optimizer.LR = 0.9
	c := newCheckpoints()
	stop, progress := stopAfter(8) // after step 9, before its evaluation
	for _, resume := range []bool{false, true} {
		mustTrain(t, 2, cfg, func(rank int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.KeepBest, env.Async, env.EverySteps, env.Resume = c.open(t), c.fs, true, true, 3, resume
			if rank == 0 && !resume {
				env.Stop, env.Progress = stop, progress
			}
		})
		if last := c.latest(t).Step; !resume && last != 9 {
			t.Fatalf("stopped after step %d, want 9", last)
		}
	}
	scored := map[int64]bool{}
	for _, step := range c.steps(t) {
		_, scored[step] = c.load(t, step).Metrics[evalLoss] // of several of a step, the newest
	}
	for step := int64(3); step <= 18; step += 3 {
		if !scored[step] {
			t.Errorf("step %d was evaluated, and no checkpoint says so: %v", step, scored)
		}
	}
}
