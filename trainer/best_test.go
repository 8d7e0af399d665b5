package trainer

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"testing"

	"ddpbatch/checkpoint"
)

// bestIn is the best evaluation in a checkpoint.
func bestIn(t *testing.T, s *checkpoint.State) best {
	t.Helper()
	var at position
	if err := json.Unmarshal(s.Values[keyPosition], &at); err != nil {
		t.Fatal(err)
	}
	return at.Best
}

// What was the best by another measure, or on other rows, is no mark for a job that has changed them.
func TestTheBestOfAnotherMeasure(t *testing.T) {
	dir, cfg := imageJob(t)
	// Rows that are trained on until they are known by heart: no others do as well.
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
			var values []float64 // of this attempt's evaluations
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
			if len(values) != 4 { // where it was resumed from, and after 3 epochs
				t.Fatalf("%d evaluations, want 4", len(values))
			}
			got, want := bestIn(t, again.state), slices.Min(values)
			if got.Step < first.Steps || got.Value != math.Abs(want) {
				t.Errorf("best %+v, want that of the second attempt, of %v", got, values)
			}
		})
	}
}

// copyOf is a folder with the last checkpoint of a run alone.
func copyOf(t *testing.T, run training) checkpoints {
	t.Helper()
	c := newCheckpoints()
	if _, err := c.open(t).Save(t.Context(), run.state); err != nil {
		t.Fatal(err)
	}
	return c
}

// Before evaluations said which step was the last, positions had none.
func TestTheBestOfAnOlderCheckpoint(t *testing.T) {
	cfg := evaluatedJob(1, 4, 3)
	cfg.Evaluate.EveryEpochs, cfg.Evaluate.Best, cfg.Optimizer.LR = 1, "loss", 1e-30
	run := complete(t, "local", 1, cfg, nil)
	var at map[string]any
	if err := json.Unmarshal(run.state.Values[keyPosition], &at); err != nil {
		t.Fatal(err)
	}
	delete(at["best"].(map[string]any), "last")
	text, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	run.state.Values = maps.Clone(run.state.Values)
	run.state.Values[keyPosition] = text
	want := bestIn(t, run.state)
	if want.Step != 3 || want.Last != 0 {
		t.Fatalf("best %+v, want one of step 3", want)
	}
	cfg.Epochs++
	got := bestIn(t, completeIn(t, copyOf(t, run), "local", 1, cfg, func(_ int, _ *Config, env *Env) { env.Resume = true }).state)
	if got.Step != want.Step || got.Value != want.Value || got.Last != 15 {
		t.Errorf("best %+v, want that of step 3, after an evaluation at step 15", got)
	}
}
