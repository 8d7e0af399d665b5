package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/rundir"
)

// digitsJob trains an MLP on the first 1,000 digits, on 4 nodes of 2 ranks, and evaluates it on the other 500.
const digitsJob = `schema = 1
name = "mnist"
[slurm]
nodes = 4
time = "00:05:00"
[launch]
nproc_per_node = 2
[train]
epochs = 10
batch_size = 16
loss = "cross_entropy"
model = { kind = "mlp", hidden = [128], activation = "relu" }
optimizer = { kind = "sgd", lr = 0.1, momentum = 0.9 }
data = { kind = "mnist", images = %q, labels = %q, train = "0:1000", eval = "1000:1500" }
[checkpoint]
every_steps = 20
codec = "zstd"
`

const (
	digitsEpochs = 10
	digitsRanks  = 8
	// 1,000 rows are 125 a rank, and 8 batches of up to 16
	digitsSteps = 8
	// PyTorch 1.13 has an accuracy of 86.2 % after the same steps (trainer/testdata/train.py). That is 431 digits; rounding may cost some.
	digitsAccuracy = 0.845
	// float32 parameters of 784-128-10, and their momentum
	digitsBytes = 2 * 4 * (784*128 + 128 + 128*10 + 10)
)

// testSlurmTrain follows a job that trains on real digits, and then inspects it with every command.
func testSlurmTrain(t *testing.T, c *cluster) {
	digits, err := filepath.Abs(filepath.Join("..", "..", "trainer", "data", "testdata", "mnist"))
	if err != nil {
		t.Fatal(err)
	}
	c.write("mnist.toml", fmt.Sprintf(digitsJob, filepath.Join(digits, "images-idx3-ubyte.gz"),
		filepath.Join(digits, "labels-idx1-ubyte.gz")))
	out := c.ok("ddpbatch", "submit", "mnist.toml", "--follow").stdout
	id := regexp.MustCompile(`(?m)^submitted job ([0-9]+):`).FindStringSubmatch(out)
	if id == nil {
		t.Fatalf("no job id in:\n%s", out)
	}
	s := c.find(id[1])

	digitsOutput(t, out)
	if logs := c.ok("ddpbatch", "logs", s.id).stdout; !strings.HasSuffix(out, logs) {
		t.Errorf("logs does not print what --follow did:\n%s", logs)
	}
	rank5 := c.ok("ddpbatch", "logs", s.id, "--rank", "5").stdout
	if lines := announced(rank5); len(lines) != digitsEpochs || !slices.Equal(lines, perRank(5)) {
		t.Errorf("logs --rank 5 prints:\n%s", rank5)
	}
	digitsRecords(s)
	digitsCheckpoints(s)
}

// digitsOutput checks what the ranks print: a line for each rank and epoch, and the accuracy.
func digitsOutput(t *testing.T, out string) {
	t.Helper()
	var want []string
	for rank := range digitsRanks {
		want = append(want, perRank(rank)...)
	}
	got := announced(out)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the ranks announce:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	found := regexp.MustCompile(`(?m)^rank 0 \| epoch [0-9]+ \|.* accuracy ([0-9.]+) %$`).FindAllStringSubmatch(out, -1)
	if len(found) != digitsEpochs {
		t.Fatalf("%d lines tell an accuracy, want one for each epoch:\n%s", len(found), out)
	}
	last := found[digitsEpochs-1][1]
	if accuracy, err := strconv.ParseFloat(last, 64); err != nil || accuracy < 100*digitsAccuracy {
		t.Errorf("the accuracy is %s %%, want %.1f or more", last, 100*digitsAccuracy)
	}
}

// announced returns the lines that each rank prints for each epoch.
func announced(out string) []string {
	return regexp.MustCompile(`(?m)^rank [0-9]+ \| epoch [0-9]+ \| batch size [0-9]+ \| steps [0-9]+$`).FindAllString(out, -1)
}

func perRank(rank int) (lines []string) {
	for epoch := range digitsEpochs {
		lines = append(lines, fmt.Sprintf("rank %d | epoch %d | batch size 16 | steps %d", rank, epoch, digitsSteps))
	}
	return lines
}

// digitsRecords checks the contents of the run directory, and what status prints about them.
func digitsRecords(s *submitted) {
	t := s.c.t
	t.Helper()
	const steps = digitsEpochs * digitsSteps
	if job := s.await(); job["JobState"] != "COMPLETED" || job["ExitCode"] != "0:0" || job["NumNodes"] != "4" {
		t.Errorf("Slurm says: %v", job)
	}
	row := s.status()
	if row.Job != s.id || row.State != "COMPLETED" || row.Attempt != 1 || row.RunDir != s.dir.Path() ||
		row.Step == nil || *row.Step != steps || row.Steps == nil || *row.Steps != steps ||
		row.Epoch == nil || *row.Epoch != digitsEpochs-1 || row.Exit == nil || *row.Exit != 0 {
		t.Errorf("status --json: %+v", row)
	}
	if v := s.verdict(1); v.Cause != "done" || v.Exit != 0 || v.FirstRank != -1 || v.Step != steps || v.JobID != s.id {
		t.Errorf("verdict: %+v", v)
	}
	if events := s.events(); !slices.Equal(events, []string{"submitting", "submit", "begin", "end"}) {
		t.Errorf("ledger: %q", events)
	}
	lines := s.metrics()
	accuracy := 0.0 // of the last evaluation; lines of checkpoints may follow it
	for _, line := range lines {
		if line.Accuracy > 0 {
			accuracy = line.Accuracy
		}
	}
	if last := lines[len(lines)-1]; last.Step != steps || accuracy < digitsAccuracy || *last.Loss >= *lines[0].Loss {
		t.Errorf("metrics begin with %+v and end with %+v, and an accuracy of %v", lines[0], last, accuracy)
	}
	link := filepath.Join(s.c.dir, "runs", ".job-mnist-"+s.id)
	if target, err := os.Readlink(link); err != nil || target != filepath.Base(s.dir.Path()) {
		t.Errorf("%s points at %q (%v), want %q", link, target, err, filepath.Base(s.dir.Path()))
	}
	for rank := range digitsRanks {
		for _, stream := range []string{"out", "err"} {
			if _, err := os.Stat(s.dir.LogPath(1, clusterNodes[rank/2], rank, stream)); err != nil {
				t.Error(err)
			}
		}
	}
}

// digitsCheckpoints checks that the checkpoints exist, are whole and are compressed.
func digitsCheckpoints(s *submitted) {
	t := s.c.t
	t.Helper()
	infos := decode[[]checkpoint.Info](t, []byte(s.c.ok("ddpbatch", "ckpt", "ls", "--json", s.id).stdout))
	var steps []int64
	verified := ""
	for _, info := range infos {
		steps = append(steps, info.Step)
		verified += fmt.Sprintf("step %d: ok\n", info.Step)
		if info.State != "committed" || info.World != digitsRanks || info.Attempt != 1 {
			t.Errorf("checkpoint: %+v", info)
		}
	}
	if want := []int64{40, 60, digitsEpochs * digitsSteps}; !slices.Equal(steps, want) {
		t.Fatalf("checkpoints are of steps %d, want the last three: %d", steps, want)
	}
	if out := s.c.ok("ddpbatch", "ckpt", "verify", s.id); out.stdout != verified {
		t.Errorf("ckpt verify: %v", out)
	}
	shards, err := filepath.Glob(filepath.Join(infos[2].Path, "shard-*"))
	if err != nil || len(shards) != digitsRanks {
		t.Fatalf("shards: %q, %v, want one of each rank", shards, err)
	}
	zstdMagic := []byte{0x28, 0xb5, 0x2f, 0xfd} // RFC 8878, 3.1.1: 0xFD2FB528, little-endian
	size, frames := 0, 0
	for _, path := range shards {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		size, frames = size+len(data), frames+bytes.Count(data, zstdMagic)
		if len(data) > digitsBytes/digitsRanks*3/2 { // ranks share the work
			t.Errorf("%s has %d bytes, of %d for all %d ranks", path, len(data), digitsBytes, digitsRanks)
		}
	}
	if size >= digitsBytes || frames == 0 {
		t.Errorf("the shards have %d bytes and %d frames of zstd; the tensors have %d bytes", size, frames, digitsBytes)
	}
}

// smallJob trains on generated data, on 2 nodes of 2 ranks, in a moment.
const smallJob = `schema = 1
name = "small"
[slurm]
nodes = 2
time = "00:05:00"
[launch]
nproc_per_node = 2
[train]
epochs = 2
batch_size = 32
loss = "mse"
model = { kind = "dense" }
data = { kind = "generated" }
optimizer = { kind = "sgd", lr = 0.05, momentum = 0.9 }
`

// testSlurmTrainInTasks trains with ranks that Slurm starts itself: with the batch script of launch.mode = "task", and with a bare srun
// whose tasks set their variables from `ddpbatch env`.
func testSlurmTrainInTasks(t *testing.T, c *cluster) {
	c.write("job.toml", smallJob)
	c.ok("ddpbatch", "submit", "job.toml", "--wait", "--set", "run_dir=agents")
	c.ok("ddpbatch", "submit", "job.toml", "--wait", "--set", "run_dir=tasks", "--set", "launch.mode=task")
	c.ok("srun", "-N2", "-n4", "--ntasks-per-node=2", "bash", "-c",
		`eval "$(ddpbatch env)"; exec ddpbatch train job.toml --set run_dir=env`)
	want := onlyRun(t, c, "agents").finalState()
	for _, parent := range []string{"tasks", "env"} {
		if got := onlyRun(t, c, parent).finalState(); !equalStates(t, got, want) {
			t.Errorf("%s ends with other parameters than one agent a node", parent)
		}
	}
}

// onlyRun opens the only run in a folder of runs.
func onlyRun(t *testing.T, c *cluster, parent string) *submitted {
	t.Helper()
	runs, err := rundir.List(filepath.Join(c.dir, parent))
	if err != nil || len(runs) != 1 {
		t.Fatalf("%s has %d runs, want 1 (%v)", parent, len(runs), err)
	}
	return &submitted{c: c, dir: runs[0]}
}
