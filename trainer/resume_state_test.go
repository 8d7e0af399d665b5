package trainer

import (
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/thin"
)

// resumeCase is a job of 20 steps in 4 epochs.
type resumeCase struct {
	name   string
	world  int
	change func(*Config)
}

// everything sets all that an optimizer step may depend on besides the gradient.
func everything(c *Config) {
	c.Optimizer.Kind, c.Optimizer.LR, c.Optimizer.WeightDecay = "adamw", 0.02, 0.1
	c.Schedule.Kind, c.Schedule.WarmupSteps, c.Schedule.MinLR = "cosine", 3, 0.001
	c.Model.Dropout, c.ClipNorm = 0.2, 0.3
	c.BatchSize, c.Accumulate = c.BatchSize/2, 2
}

// A run that was stopped and resumed ends with the bytes of a run that never stopped, whatever state it has to remember.
func TestResumeRemembersEverything(t *testing.T) { // without the race detector
	smallBuckets := func(c *Config) { c.DDP.BucketMB = 0.0005 }
	both := func(changes ...func(*Config)) func(*Config) {
		return func(c *Config) {
			for _, change := range changes {
				change(c)
			}
		}
	}
	compress := func(name string) func(*Config) {
		return func(c *Config) { c.DDP.Compress, c.DDP.Rank, c.DDP.StartStep = name, 2, 5 }
	}
	zero := func(c *Config) { c.Optimizer.Zero = true }
	pipeline := func(c *Config) { c.Pipeline, c.MicroBatches = 2, 2 }
	replicas := func(c *Config) { c.Mode, c.Replicas = "dp", 3 }
	average := func(c *Config) { c.DDP.AverageEvery, c.DDP.AverageWarmup = 3, 4 }

	all := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
	some := []int64{1, 2, 5, 6, 13, 19}
	for _, test := range []struct {
		resumeCase
		stops []int64
	}{
		{resumeCase{"adamw, cosine, dropout, clipped, accumulated", 2, everything}, all},
		{resumeCase{"adam of one rank", 1, func(c *Config) { c.Optimizer.Kind, c.Optimizer.LR = "adam", 0.02 }}, some},
		{resumeCase{"lamb, one cycle", 2, func(c *Config) { c.Optimizer.Kind, c.Schedule.Kind = "lamb", "one_cycle" }}, some},
		{resumeCase{"nesterov, step schedule", 3, func(c *Config) {
			c.Optimizer.Nesterov, c.Schedule.Kind, c.Schedule.StepSize = true, "step", 6
		}}, some},
		{resumeCase{"float16", 2, both(everything, func(c *Config) { c.Precision = "float16" })}, some},
		{resumeCase{"float16 that overflows", 2, func(c *Config) { c.Precision, c.Data.Noise = "float16", 40 }}, some},
		{resumeCase{"sent as float16", 2, both(smallBuckets, compress("float16"))}, some},
		{resumeCase{"int8", 2, both(everything, compress("int8"))}, some},
		{resumeCase{"int8, small buckets", 3, both(smallBuckets, compress("int8"))}, some},
		{resumeCase{"powersgd", 2, both(everything, compress("powersgd"))}, some},
		{resumeCase{"powersgd, small buckets", 3, both(smallBuckets, compress("powersgd"))}, some},
		{resumeCase{"ZeRO", 3, both(everything, zero)}, some},
		{resumeCase{"ZeRO of more ranks than parameters, int8", 4,
			both(zero, compress("int8"), func(c *Config) { c.Model.Kind = "dense" })}, some},
		{resumeCase{"pipeline", 2, both(everything, pipeline)}, some},
		{resumeCase{"pipelines, ZeRO, int8", 4, both(everything, pipeline, zero, compress("int8"))}, some},
		{resumeCase{"pipeline, powersgd", 2, both(everything, pipeline, compress("powersgd"))}, some},
		{resumeCase{"pipelines, powersgd", 4, both(everything, pipeline, smallBuckets, compress("powersgd"))}, some},
		{resumeCase{"local SGD", 2, both(everything, average)}, some},
		{resumeCase{"replicas", 1, both(everything, replicas)}, some},
		{resumeCase{"ranks of replicas, powersgd", 2, both(everything, replicas, compress("powersgd"))}, some},
		{resumeCase{"uneven", 3, func(c *Config) { c.Data.Remainder = "uneven" }}, some},
		{resumeCase{"drop", 3, func(c *Config) { c.Data.Remainder = "drop" }}, some},
		{resumeCase{"the best evaluation", 2, func(c *Config) {
			c.Data.Train, c.Data.Eval, c.Evaluate.EverySteps, c.Evaluate.Best, c.Evaluate.Patience = "0:39", "0:7", 2, "loss", 100
		}}, some},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := deepJob()
			cfg.Epochs, cfg.BatchSize, cfg.Data.Rows = 4, 8/max(1, test.world), 39
			if test.world == 3 {
				cfg.BatchSize, cfg.Data.Rows = 2, 29
			}
			if cfg.BatchSize%2 == 1 {
				t.Fatal("an odd batch cannot be accumulated")
			}
			test.change(&cfg)
			if cfg.Pipeline > 1 {
				cfg.BatchSize *= cfg.Pipeline
			}
			test.stopAndResume(t, "", cfg, test.stops)
		})
	}
}

// A run that was stopped and resumed remembers its running statistics.
func TestResumeRemembersBuffers(t *testing.T) { // without the race detector
	dir, cfg := imageJob(t)
	cfg.Epochs, cfg.Data.Train, cfg.Data.Eval, cfg.Evaluate.Best = 4, "0:39", "39:48", "loss"
	for _, test := range []resumeCase{
		{"a rank", 1, func(c *Config) { c.BatchSize = 8 }},
		{"ranks of their own", 2, func(*Config) {}},
		{"over ranks", 2, func(c *Config) { c.DDP.SyncBatchNorm, c.Optimizer.Kind, c.Optimizer.LR = true, "adam", 0.01 }},
		{"pipeline", 2, func(c *Config) { c.Pipeline, c.BatchSize = 2, 8 }},
		{"replicas", 1, func(c *Config) { c.Mode, c.Replicas, c.BatchSize = "dp", 2, 8 }},
		{"local SGD", 2, func(c *Config) { c.DDP.AverageEvery = 2 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := cfg
			test.change(&cfg)
			test.stopAndResume(t, dir, cfg, []int64{1, 3, 5, 12})
		})
	}
}

// stopAndResume stops a run after each of the given steps, resumes it, and compares its end with that of a run that never stopped.
func (c resumeCase) stopAndResume(t *testing.T, dir string, cfg Config, stops []int64) {
	t.Helper()
	straight := complete(t, "local", c.world, cfg, func(_ int, _ *Config, env *Env) { env.WorkDir = dir })
	if straight.Steps != 20 {
		t.Fatalf("%d steps, want 20", straight.Steps)
	}
	checkFinal(t, straight.state)
	for i := 0; i < len(stops); i += thin.Step(3) {
		k := stops[i]
		ask, progress := stopAfter(k - 1)
		stopped := complete(t, "local", c.world, cfg, func(rank int, _ *Config, env *Env) {
			if env.WorkDir = dir; rank == 0 {
				env.Stop, env.onStep = ask, progress
			}
		})
		// Local SGD stops when ranks have the same parameters again, which may be at the end of the step in which it is asked to stop.
		at, local := stopped.Steps, cfg.DDP.AverageEvery > 0
		if at != k && !local || at < k-1 || stopped.Stopped != (at < 20) {
			t.Fatalf("asked to stop in step %d: %+v", k, stopped.Result)
		}
		resumed := completeIn(t, stopped.checkpoints, "local", c.world, cfg, func(_ int, _ *Config, env *Env) {
			env.WorkDir, env.Resume = dir, true
		})
		if resumed.Resumed != stopped.Steps || resumed.Loss != straight.Loss || resumed.EvalLoss != straight.EvalLoss {
			t.Errorf("resumed from step %d: %+v, want the losses of %+v", k, resumed.Result, straight.Result)
		}
		t.Logf("resumed from step %d", stopped.Steps)
		sameState(t, resumed.state, straight.state)
	}
}

// checkFinal checks that the final state has something to compare.
func checkFinal(t *testing.T, s *checkpoint.State) {
	t.Helper()
	if s.Step != 20 || len(s.Tensors) < 3 {
		t.Fatalf("a straight run saved step %d and %d tensors", s.Step, len(s.Tensors))
	}
}
