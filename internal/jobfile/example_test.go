package jobfile

import (
	"os"
	"reflect"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
	"ddpbatch/mpi/launch"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
	"ddpbatch/trainer"
)

// TestEveryFieldOfAnExample: what becomes of testdata/example.toml, written out by hand.
func TestEveryFieldOfAnExample(t *testing.T) {
	src, err := os.ReadFile("testdata/example.toml")
	if err != nil {
		t.Fatal(err)
	}
	got, warnings, err := parse(string(src))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %q", err, lines(warnings))
	}
	want := &Job{
		Schema: 1, Name: "mnist", WorkDir: "/jobs", RunDir: "/jobs/runs",
		Slurm: slurm.Options{
			List: []slurm.Option{
				{Name: "partition", Value: "gpu"}, {Name: "nodes", Value: "2"}, {Name: "gpus-per-node", Value: "4"},
				{Name: "cpus-per-task", Value: "4"}, {Name: "mem", Value: "32G"}, {Name: "time", Value: "01:00:00"},
				{Name: "dependency", Value: "afterok:123"},
			},
			Extra: []string{"--switches=1"}, Skip: []string{"--mem"},
		},
		Setup:  slurm.Setup{Modules: []string{"python/3.8", "cuda/11.2"}, Venv: "~/venv", Script: []string{"source env.sh"}},
		Env:    map[string]string{"NCCL_DEBUG": "INFO"},
		Launch: launch.Config{NprocPerNode: launch.Nproc{Counts: []int{4}}, Command: []string{"python", "train.py"}, Mode: "agent", WarnSignal: "USR2", Prefix: "[${host} ${rank}] ", Grace: time.Minute, Hang: 30 * time.Minute, GPUs: "auto"},
		Requeue: recovery.Policy{
			On: []recovery.Cause{"preempt", "timeout", "node"}, Lead: 2 * time.Minute, NoProgress: 3,
		},
		MPI: mpi.Config{Transport: "auto", Algorithm: "auto", Deterministic: true, Timeout: 10 * time.Minute},
		Train: trainer.Config{
			Epochs: 10, BatchSize: 64, Accumulate: 1, Seed: 1, Mode: "ddp", Pipeline: 1, Precision: "float32", BLAS: "auto",
			Loss: "cross_entropy", Init: "weights.safetensors",
			Model: trainer.ModelConfig{
				Kind: "mlp", Hidden: []int{128}, Activation: "relu",
				Channels: []int{16, 32}, Kernel: 3, Layers: 4, Heads: 4, Width: 128, Context: 128, // of other kinds
			},
			Data: trainer.DataConfig{
				Kind: "mnist", Images: "t10k-images-idx3-ubyte.gz", Labels: "t10k-labels-idx1-ubyte.gz",
				Train: "0:9000", Eval: "9000:10000", Shuffle: true, Remainder: "pad",
				Header: "auto", Delimiter: ",", Rows: 4096, Inputs: 20, Outputs: 1, // of other kinds
			},
			Optimizer: trainer.OptimizerConfig{Kind: "sgd", LR: 0.1, Momentum: 0.9, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8},
			Schedule:  trainer.ScheduleConfig{Kind: "cosine", WarmupSteps: 100, StepSize: 1000, Gamma: 0.1},
			DDP:       trainer.DDPConfig{BucketMB: 25, Compress: "none", Overlap: true, Rank: 1, StartStep: 1000},
			Evaluate:  trainer.EvaluateConfig{EveryEpochs: 1},
		},
		Checkpoint: checkpoint.Config{EverySteps: 200, KeepLast: 3, Codec: "auto", Async: true, Resume: "auto"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
