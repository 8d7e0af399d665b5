package trainer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// evaluatedJob returns deepJob with the given number of steps in each epoch, in batches of 8 rows over all ranks, and with 8 rows to
// evaluate on.
func evaluatedJob(world, epochs, steps int) Config {
	cfg := deepJob()
	cfg.Epochs, cfg.BatchSize, cfg.Data.Rows = epochs, 8/world, 8*steps+8
	cfg.Data.Train, cfg.Data.Eval = rowRange(0, 8*steps), rowRange(8*steps, 8*steps+8)
	cfg.Evaluate.EveryEpochs = 0
	return cfg
}

// evaluationsIn returns the steps of the metrics' lines that have an evaluation. It checks that every line has a rate.
func evaluationsIn(t *testing.T, lines *bytes.Buffer) []int64 {
	t.Helper()
	var steps []int64
	for decoder := json.NewDecoder(lines); decoder.More(); {
		var line struct {
			Step        int64
			SamplesPerS float64  `json:"samples_per_s"`
			EvalLoss    *float64 `json:"eval_loss"`
		}
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.EvalLoss != nil {
			steps = append(steps, line.Step)
		}
		if line.SamplesPerS <= 0 {
			t.Errorf("the line of step %d has %v samples/s", line.Step, line.SamplesPerS)
		}
	}
	return steps
}

// Evaluations are made after the configured steps and epochs, each with a line of metrics of its own step.
func TestEvaluationsBelongToTheirSteps(t *testing.T) {
	for name, test := range map[string]struct {
		world, epochs, steps int
		change               func(*Config)
		want                 []int64
	}{
		"each epoch has one step":  {1, 4, 1, func(c *Config) { c.Evaluate.EverySteps = 1 }, []int64{1, 2, 3, 4}},
		"at the ends of epochs":    {1, 4, 2, func(c *Config) { c.Evaluate.EverySteps = 2 }, []int64{2, 4, 6, 8}},
		"there and between":        {2, 3, 4, func(c *Config) { c.Evaluate.EverySteps = 2 }, []int64{2, 4, 6, 8, 10, 12}},
		"not at the end":           {1, 2, 4, func(c *Config) { c.Evaluate.EverySteps = 3 }, []int64{3, 6}},
		"some epochs and the last": {1, 5, 4, func(c *Config) { c.Evaluate.EveryEpochs = 3 }, []int64{12, 20}},
		"epochs and steps": {1, 6, 4, func(c *Config) { c.Evaluate.EveryEpochs, c.Evaluate.EverySteps = 5, 3 },
			[]int64{3, 6, 9, 12, 15, 18, 20, 21, 24}},
		"where there is a line":   {2, 2, 12, func(c *Config) { c.Evaluate.EverySteps = 10 }, []int64{10, 20}},
		"once averages are taken": {2, 2, 6, func(c *Config) { c.Evaluate.EverySteps, c.DDP.AverageEvery = 5, 4 }, []int64{5, 12}},
		"max_steps in an epoch":   {2, 3, 4, func(c *Config) { c.Evaluate.EveryEpochs, c.MaxSteps = 1, 6 }, []int64{4, 6}},
		"max_steps at an epoch's end": {1, 5, 4, func(c *Config) { c.Evaluate.EveryEpochs, c.MaxSteps = 3, 8 },
			[]int64{8}},
		"max_steps and steps": {1, 3, 4, func(c *Config) { c.Evaluate.EveryEpochs, c.Evaluate.EverySteps, c.MaxSteps = 2, 3, 6 },
			[]int64{3, 6}},
		"max_steps without evaluations": {1, 3, 4, func(c *Config) { c.MaxSteps = 6 }, nil},
		"max_steps between averages": {2, 2, 6, func(c *Config) { c.Evaluate.EveryEpochs, c.DDP.AverageEvery, c.MaxSteps = 1, 4, 11 },
			[]int64{6, 11}},
		"averages of the epoch end": {2, 2, 6, func(c *Config) { c.Evaluate.EverySteps, c.DDP.AverageEvery = 4, 100 }, []int64{6, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := evaluatedJob(test.world, test.epochs, test.steps)
			test.change(&cfg)
			var lines bytes.Buffer
			complete(t, "local", test.world, cfg, func(rank int, _ *Config, env *Env) {
				if env.Clock = ticking(); rank == 0 {
					env.Metrics = &lines
				}
			})
			if got := evaluationsIn(t, &lines); !slices.Equal(got, test.want) {
				t.Errorf("evaluated after steps %v, want %v", got, test.want)
			}
		})
	}
}

// The line of an epoch without an evaluation does not repeat an older one.
func TestNoEvaluationIsPrintedTwice(t *testing.T) {
	cfg := evaluatedJob(1, 5, 4)
	cfg.Evaluate.EveryEpochs, cfg.Evaluate.EverySteps = 3, 3
	out := trainOver(t, "local", 1, cfg, nil)[0].out.String()
	for epoch, want := range []bool{false, false, true, false, true} { // after step 12, the third epoch's end, and at the end of the run
		line := regexp.MustCompile(fmt.Sprintf(`epoch %d \| loss \S+ \| samples/s \d+ \| eval loss \d+\.\d{4}\n`, epoch))
		if line.MatchString(out) != want {
			t.Errorf("evaluated at the end of epoch %d is %v, want %v:\n%s", epoch, !want, want, out)
		}
	}
}

// A run that max_steps ends reports its last step as it reports the end of an epoch, and only once. An attempt that resumes there has
// nothing to do, unless the evaluation was interrupted.
func TestMaxStepsEndsWithAReport(t *testing.T) {
	for _, steps := range []int{6, 8} { // within the second epoch, and at its end
		cfg := evaluatedJob(2, 3, 4)
		cfg.Evaluate.EveryEpochs, cfg.MaxSteps = 1, steps
		cfg.Data.Eval, cfg.Data.Rows = rowRange(32, 72), 72 // 5 rounds of 4 rows on each of 2 ranks
		c := newCheckpoints()
		attempt := func(stopAt int64) (Result, string) {
			t.Helper()
			stop, progress := stopAfter(stopAt)
			world := mustTrain(t, 2, cfg, func(rank int, _ *Config, env *Env) {
				env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true
				if env.Clock = ticking(); rank == 0 && stopAt > 0 {
					env.Stop, env.onStep = stop, progress
				}
			})
			return world[0].Result, world[0].out.String()
		}
		last := regexp.MustCompile(`(?m)^rank 0 \| epoch 1 \| loss \d\S+ .*\| eval loss \d\.\d{4}$`)
		stopped, out := attempt(int64(steps) - 1) // asked to stop in the last step
		if !stopped.Stopped || last.MatchString(out) {
			t.Fatalf("max_steps %d: %+v, not stopped in its last evaluation:\n%s", steps, stopped, out)
		}
		ended, out := attempt(0)
		if ended.Stopped || ended.Resumed != int64(steps) || !ended.Evaluated || !last.MatchString(out) {
			t.Errorf("max_steps %d: %+v, without its last evaluation:\n%s", steps, ended, out)
		}
		idle, out := attempt(0)
		nothing := fmt.Sprintf("rank 0 | nothing to do: step %d was reached before, and max_steps is %d\n", steps, steps)
		if idle.Evaluated || !strings.Contains(out, nothing) {
			t.Errorf("max_steps %d: %+v, want %q:\n%s", steps, idle, nothing, out)
		}
	}
}

// A run that is stopped after a step whose evaluation is due makes that evaluation when it resumes.
func TestResumeMakesTheEvaluationThatIsDue(t *testing.T) { // without the race detector
	for name, test := range map[string]struct {
		world, epochs, steps int
		change               func(*Config)
	}{
		"each epoch has one step": {1, 6, 1, func(c *Config) { c.Evaluate.EverySteps = 1 }},
		"at the ends of epochs":   {2, 4, 2, func(c *Config) { c.Evaluate.EverySteps = 2 }},
		"there and between":       {1, 2, 6, func(c *Config) { c.Evaluate.EverySteps = 3 }},
		"local SGD":               {2, 3, 6, func(c *Config) { c.Evaluate.EverySteps, c.DDP.AverageEvery = 5, 3 }},
		"epochs and steps":        {1, 4, 3, func(c *Config) { c.Evaluate.EveryEpochs, c.Evaluate.EverySteps = 2, 3 }},
		"max_steps in an epoch":   {2, 4, 4, func(c *Config) { c.Evaluate.EveryEpochs, c.MaxSteps = 1, 10 }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := evaluatedJob(test.world, test.epochs, test.steps)
			cfg.Optimizer.LR, cfg.Evaluate.Best, cfg.Evaluate.Patience = 1e-30, "loss", 100 // the first evaluation is the best
			test.change(&cfg)
			straight := complete(t, "local", test.world, cfg, nil)
			if b := bestIn(t, straight.state); b.Step == 0 || b.Since == 0 {
				t.Fatalf("best %+v: nothing to compare", b)
			}
			for k := int64(1); k < straight.Steps; k++ {
				ask, progress := stopAfter(k - 1)
				stopped := complete(t, "local", test.world, cfg, func(rank int, _ *Config, env *Env) {
					if rank == 0 {
						env.Stop, env.onStep = ask, progress
					}
				})
				if !stopped.Stopped {
					continue // local SGD stops at the next average, which may be at the end
				}
				resumed := completeIn(t, stopped.checkpoints, "local", test.world, cfg,
					func(_ int, _ *Config, env *Env) { env.Resume = true })
				if resumed.Resumed != stopped.Steps {
					t.Fatalf("%+v, want a resume from step %d", resumed.Result, stopped.Steps)
				}
				if got, want := bestIn(t, resumed.state), bestIn(t, straight.state); got != want {
					t.Errorf("stopped after step %d: best %+v, want %+v", stopped.Steps, got, want)
				}
			}
		})
	}
}

// Every rank calls Alive after each step and after each round of an evaluation.
func TestEveryRankShowsThatItIsAlive(t *testing.T) {
	cfg := evaluatedJob(2, 2, 4)
	cfg.Data.Eval, cfg.Data.Rows = rowRange(32, 72), 72 // 5 rounds of 4 rows on each of 2 ranks
	cfg.Evaluate.EveryEpochs = 1
	var beats [2]int
	complete(t, "local", 2, cfg, func(rank int, _ *Config, env *Env) {
		env.Alive = func() { beats[rank]++ }
	})
	if want := [2]int{2 * (4 + 5), 2 * (4 + 5)}; beats != want {
		t.Errorf("they showed it %v times, want %v", beats, want)
	}
}
