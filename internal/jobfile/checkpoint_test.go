package jobfile

import (
	"testing"
	"time"

	"ddpbatch/checkpoint"
)

// TestEveryCheckpointKey reads each key once, and holds what the trainer gets against what was written.
func TestEveryCheckpointKey(t *testing.T) {
	job, warnings, err := parse(`name = "x"
[train]
loss = "mse"
model = { kind = "dense" }
data = { kind = "generated", rows = 10, train = "0:9", eval = "9:10" }
evaluate = { best = "loss" }
[checkpoint]
every_steps = 50
keep_last = 2
keep_every = 1000
keep_within = "24h"
keep_best = 4
codec = "zstd"
async = false
resume = "never"
delta = 5
memory = "4G"
local = "/scratch/me"
at_start = true
`)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %q", err, lines(warnings))
	}
	want := checkpoint.Config{
		EverySteps: 50, KeepLast: 2, KeepEvery: 1000, KeepWithin: 24 * time.Hour, KeepBest: 4, Codec: "zstd",
		Resume: "never", Delta: 5, Memory: 4 << 30, Local: "/scratch/me", AtStart: true,
	}
	if job.Checkpoint != want {
		t.Errorf("got %+v, want %+v", job.Checkpoint, want)
	}
	policy := job.Checkpoint.Policy(job.Train.Evaluate.Best)
	if want := (checkpoint.Policy{Last: 2, Every: 1000, Within: 24 * time.Hour, Best: 4, Metric: "eval_loss"}); policy != want {
		t.Errorf("policy %+v, want %+v", policy, want)
	}
	if p := job.Checkpoint.Policy("accuracy"); p.Metric != "eval_accuracy" || !p.Max {
		t.Errorf("by accuracy the policy is %+v, and more of it is better", p)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"1K": 1 << 10, "512M": 512 << 20, "4G": 4 << 30, "1048575T": 1048575 << 40} {
		job, _, err := parse("name = \"x\"\n[checkpoint]\nmemory = \"" + text + "\"" + command)
		if err != nil || job.Checkpoint.Memory != want {
			t.Errorf("%s: %d bytes, %v, want %d", text, job.Checkpoint.Memory, err, want)
		}
	}
}

func TestFaultsBetweenCheckpointKeys(t *testing.T) {
	checkFaults(t, "name = \"x\"\n[checkpoint]\nkeep_best = 2"+builtin, nil,
		`job.toml:3:1: checkpoint.keep_best needs train.evaluate.best, which says by what: write "loss" or "accuracy"`)
	checkFaults(t, "name = \"x\"\n[checkpoint]\ncodec = \"none\"\ndelta = 3"+command, nil,
		`job.toml:4:1: checkpoint.delta is 3 and codec is "none": what has changed is smaller only where it is compressed; leave one of them out`)
}
