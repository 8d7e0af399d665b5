package jobfile

import (
	"slices"
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
replicate = true
at_start = true
`)
	if err != nil || len(warnings) != 1 || warnings[0].Key != "checkpoint.delta" {
		t.Fatalf("%v, %q", err, lines(warnings))
	}
	want := checkpoint.Config{
		EverySteps: 50, KeepLast: 2, KeepEvery: 1000, KeepWithin: 24 * time.Hour, KeepBest: 4, Codec: "zstd",
		Resume: "never", Delta: 5, Memory: 4 << 30, Local: "/scratch/me", Replicate: true, AtStart: true,
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

// Deltas are asked for and not made where there is a node-local tier (distributed.chooseMode), which is said where they are asked for.
func TestDeltaBesideLocal(t *testing.T) {
	const want = `checkpoint.delta = 3 counts for nothing beside checkpoint.local: all checkpoints on a node-local disk are full ones; leave one of them out`
	for _, test := range []struct {
		src, place string
		sets       []string
	}{
		{"name = \"x\"\n[checkpoint]\nlocal = \"/scratch\"\ndelta = 3" + command, "job.toml:4:1", nil},
		{"name = \"x\"\n[checkpoint]\ndelta = 3" + command, "job.toml:3:1", []string{"checkpoint.local=/scratch"}},
		{"name = \"x\"\n[checkpoint]\nlocal = \"/scratch\"" + command, "--set checkpoint.delta", []string{"checkpoint.delta=3"}},
		{"name = \"x\"\n[checkpoint]\nlocal = \"/scratch\"\ndelta = 0" + command, "", nil},
		{"name = \"x\"\n[checkpoint]\ndelta = 3" + command, "", nil},
	} {
		_, warnings, err := parse(test.src, test.sets...)
		got := lines(warnings)
		if err != nil || test.place == "" && len(got) > 0 || test.place != "" && !slices.Equal(got, []string{test.place + ": " + want}) {
			t.Errorf("%q, %q: %v, warnings %q", test.src, test.sets, err, got)
		}
	}
	// a fault of one of them is said alone
	checkFaults(t, "name = \"x\"\n[checkpoint]\nlocal = \"scratch\"\ndelta = 3"+command, nil,
		`job.toml:3:1: checkpoint.local must be an absolute path, not the text "scratch"`)
	if _, warnings, _ := parse("name = \"x\"\n[checkpoint]\nlocal = \"scratch\"\ndelta = 3" + command); len(warnings) > 0 {
		t.Errorf("beside a fault: %q", lines(warnings))
	}
}

// Memory in which not even one thread can encode is refused before there is a job, where there is something to encode.
func TestMemoryThatCanNeverDo(t *testing.T) {
	const want = `job.toml:3:1: checkpoint.memory is 5M, and one thread takes 6M to encode: raise it to 6M or more, or leave it out`
	checkFaults(t, "name = \"x\"\n[checkpoint]\nmemory = \"5M\""+builtin, nil, want)
	checkFaults(t, "name = \"x\"\n[checkpoint]\nmemory = \"6M\"\nlocal = \"/scratch\"\nreplicate = true"+builtin, nil,
		`job.toml:3:1: checkpoint.memory is 6M, and one thread takes 7M to encode: raise it to 7M or more, or leave it out`)
	for _, fine := range []string{"memory = \"6M\"" + builtin, "memory = \"5M\"\ncodec = \"none\"" + builtin, "memory = \"5M\"" + command} {
		checkFaults(t, "name = \"x\"\n[checkpoint]\n"+fine, nil)
	}
}
