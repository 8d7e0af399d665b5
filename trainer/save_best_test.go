package trainer

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"ddpbatch/checkpoint"
)

// If the best checkpoints are kept, each evaluation gets a checkpoint that holds the evaluation's loss.
func TestTheBestAreKept(t *testing.T) {
	c := newCheckpoints()
	cfg := evaluatedJob(2, 6, 3)
	cfg.Evaluate.EverySteps, cfg.Evaluate.Best = 3, "loss"
	keep := checkpoint.Policy{Last: 2, Best: 3, Metric: "eval_loss"}
	var lines bytes.Buffer
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) {
		dir, err := checkpoint.Open("checkpoints", checkpoint.Options{FS: c.fs, Run: "test", Attempt: 1, Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		env.Checkpoints, env.FS, env.KeepBest, env.Async, env.Metrics = dir, c.fs, true, true, &lines
	})
	losses := map[int64]float64{}
	for decoder := json.NewDecoder(&lines); decoder.More(); {
		var line metrics
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.EvalLoss != nil {
			losses[line.Step] = *line.EvalLoss
		}
	}
	steps := []int64{3, 6, 9, 12, 15, 18}
	if len(losses) != len(steps) {
		t.Fatalf("evaluations %v, want one after each third step", losses)
	}
	best := slices.Clone(steps)
	slices.SortFunc(best, func(a, b int64) int { return int(1e9 * (losses[a] - losses[b])) })
	want := append(slices.Clone(best[:3]), 15, 18)
	slices.Sort(want)
	if got, want := c.steps(t), slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("checkpoints of steps %v, want the best three and the last two of %v: %v", got, losses, want)
	}
	for _, step := range c.steps(t) {
		if got := c.load(t, step).Metrics["eval_loss"]; got != losses[step] {
			t.Errorf("step %d has a loss of %v, want %v", step, got, losses[step])
		}
	}
}

// If an evaluation and a checkpoint are due after the same step, the checkpoint holds the evaluation's loss. This also holds if a stop
// interrupts the evaluation and the resumed run makes it again.
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
				env.Stop, env.onStep = stop, progress
			}
		})
		if last := c.latest(t).Step; !resume && last != 9 {
			t.Fatalf("stopped after step %d, want 9", last)
		}
	}
	scored := map[int64]bool{}
	for _, step := range c.steps(t) {
		_, scored[step] = c.load(t, step).Metrics[evalLoss] // load returns the newest of several checkpoints of a step
	}
	for step := int64(3); step <= 18; step += 3 {
		if !scored[step] {
			t.Errorf("step %d was evaluated, and no checkpoint says so: %v", step, scored)
		}
	}
}

// bestIn returns the best evaluation in a checkpoint.
func bestIn(t *testing.T, s *checkpoint.State) best {
	t.Helper()
	var at position
	if err := json.Unmarshal(s.Values[keyPosition], &at); err != nil {
		t.Fatal(err)
	}
	return at.Best
}

// If a job changes its measure, or its rows to evaluate, the best evaluation from before no longer counts.
func TestTheBestOfAnotherMeasureDoesNotCount(t *testing.T) {
	dir, cfg := imageJob(t)
	// The rows to evaluate are also trained on, until the model fits them. No other rows have so small a loss.
	cfg.Epochs, cfg.Data.Train, cfg.Data.Eval, cfg.Evaluate.Best = 8, "0:39", "0:9", "loss"
	inDir := func(_ int, _ *Config, env *Env) { env.WorkDir = dir }
	first := complete(t, "local", 1, cfg, inDir)
	if bestIn(t, first.state).Step == 0 {
		t.Fatal("there was no best evaluation")
	}
	for name, change := range map[string]func(*Config){
		"accuracy":   func(c *Config) { c.Evaluate.Best = "accuracy" },
		"other rows": func(c *Config) { c.Data.Eval = "39:48" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			cfg.Epochs, cfg.Optimizer.LR = first.Epochs+3, 1e-30
			change(&cfg)
			var lines bytes.Buffer
			again := completeIn(t, copyOf(t, first), "local", 1, cfg, func(_ int, _ *Config, env *Env) {
				env.WorkDir, env.Resume, env.Metrics = dir, true, &lines
			})
			var values []float64 // this attempt's evaluations
			for decoder := json.NewDecoder(&lines); decoder.More(); {
				var line metrics
				if err := decoder.Decode(&line); err != nil {
					t.Fatal(err)
				}
				if line.EvalLoss != nil && cfg.Evaluate.Best == "accuracy" {
					values = append(values, -*line.Accuracy)
				} else if line.EvalLoss != nil {
					values = append(values, *line.EvalLoss)
				}
			}
			if len(values) != 4 { // one at the resume, and one after each of 3 epochs
				t.Fatalf("%d evaluations, want 4", len(values))
			}
			got, want := bestIn(t, again.state), slices.Min(values)
			if got.Step < first.Steps || got.Value != math.Abs(want) {
				t.Errorf("best %+v, want that of the second attempt, of %v", got, values)
			}
		})
	}
}

// copyOf returns a folder that holds only the last checkpoint of a run.
func copyOf(t *testing.T, run training) checkpoints {
	t.Helper()
	c := newCheckpoints()
	if _, err := c.open(t).Save(t.Context(), run.state); err != nil {
		t.Fatal(err)
	}
	return c
}
