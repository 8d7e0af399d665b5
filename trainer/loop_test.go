package trainer

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	gonum "gonum.org/v1/gonum/blas"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
	"ddpbatch/trainer/blas"
)

// sumsInOtherOrder is how much values of about 1 may differ after some steps of SGD if the gradients of a batch are added up in
// another order: a few units in the last place, 6e-8, for each step.
const sumsInOtherOrder = 3e-6

// nearModel compares parameters and buffers within a tolerance.
func nearModel(t *testing.T, got, want *checkpoint.State, tolerance float64) {
	t.Helper()
	compared := 0
	for _, tensor := range want.Tensors {
		if !strings.HasPrefix(tensor.Name, "model.") {
			continue
		}
		compared++
		if d := distance(floatsOf(t, got, tensor.Name), floatsOf(t, want, tensor.Name)); d > tolerance {
			t.Errorf("%s differs by %.2g", tensor.Name, d)
		}
	}
	if compared == 0 {
		t.Error("the checkpoint has no model")
	}
}

// The steps are the same however a batch of rows is split over ranks, passes, replicas or pipelines.
func TestABatchMayBeSplit(t *testing.T) { // without the race detector
	type split struct {
		name   string
		world  int
		rows   int // of a step
		change func(*Config)
	}
	splits := []split{
		{"2 ranks", 2, 24, func(c *Config) { c.BatchSize = 12 }},
		{"4 ranks", 4, 24, func(c *Config) { c.BatchSize = 6 }},
		{"3 ranks, 2 passes", 3, 24, func(c *Config) { c.BatchSize, c.Accumulate = 4, 2 }},
		{"5 passes, of other sizes", 1, 24, func(c *Config) { c.BatchSize, c.Accumulate = 6, 4 }},
		{"3 replicas in a process", 1, 24, func(c *Config) { c.Mode, c.Replicas = "dp", 3 }},
		{"5 replicas in a process, of other sizes", 1, 24, func(c *Config) { c.Mode, c.Replicas = "dp", 5 }},
		{"2 ranks of 2 replicas", 2, 24, func(c *Config) { c.Mode, c.Replicas, c.BatchSize = "dp", 2, 12 }},
		{"a pipeline, 1 micro-batch", 2, 24, func(c *Config) { c.Pipeline, c.MicroBatches = 2, 1 }},
		{"a pipeline, 5 micro-batches", 2, 24, func(c *Config) { c.Pipeline, c.MicroBatches = 2, 5 }},
		{"a pipeline of 3 stages, 2 passes", 3, 24, func(c *Config) { c.Pipeline, c.BatchSize, c.Accumulate = 3, 12, 2 }},
		{"2 pipelines", 4, 24, func(c *Config) { c.Pipeline, c.BatchSize = 2, 12 }},
		{"5 ranks, of which some have fewer rows at the end", 5, 25, func(c *Config) { c.BatchSize, c.Data.Remainder = 5, "uneven" }},
	}
	check := func(t *testing.T, dir string, cfg Config, splits []split) {
		t.Helper()
		cfg.Data.Train, cfg.Data.Eval = "0:48", "3:20" // all, and 17 of them
		inDir := func(_ int, _ *Config, env *Env) { env.WorkDir = dir }
		unsplit := map[int]training{}
		for _, rows := range []int{24, 25} {
			cfg.BatchSize = rows
			unsplit[rows] = complete(t, "local", 1, cfg, inDir)
		}
		for _, s := range splits {
			t.Run(s.name, func(t *testing.T) {
				cfg := cfg
				cfg.BatchSize = s.rows
				s.change(&cfg)
				got, want := complete(t, "local", s.world, cfg, inDir), unsplit[s.rows]
				nearModel(t, got.state, want.state, sumsInOtherOrder)
				if d := distance(got.losses, want.losses); d > sumsInOtherOrder {
					t.Errorf("losses %v, unsplit %v", got.losses, want.losses)
				}
				if d := math.Abs(got.EvalLoss - want.EvalLoss); d > sumsInOtherOrder || got.Accuracy != want.Accuracy || !got.Evaluated {
					t.Errorf("%+v, unsplit %+v", got.Result, want.Result)
				}
			})
		}
	}
	t.Run("mlp", func(t *testing.T) { check(t, "", deepJob(), splits) })
	t.Run("mlp, clipped", func(t *testing.T) {
		cfg := deepJob()
		cfg.ClipNorm = 0.05 // below the norm of every stage
		check(t, "", cfg, splits)
	})
	t.Run("gpt", func(t *testing.T) {
		dir, cfg := textJob(t)
		check(t, dir, cfg, splits)
	})
	dir, cfg := imageJob(t)
	t.Run("cnn", func(t *testing.T) {
		cfg := cfg
		cfg.Model.BatchNorm = false
		check(t, dir, cfg, splits)
	})
	t.Run("cnn with batch norm over ranks", func(t *testing.T) {
		cfg := cfg
		cfg.DDP.SyncBatchNorm = true
		check(t, dir, cfg, splits[:2])
	})
}

// A run that max_steps ends, in the middle of an epoch or at its end, has that many steps. Resumed without the limit, it ends with the
// same bytes as a run without the limit. Ranks of local SGD average before they end.
func TestMaxStepsEndsARunThatGoesOn(t *testing.T) {
	const size, epochs, perEpoch = 2, 3, 4
	for name, change := range map[string]func(*Config){
		"ddp":       func(*Config) {},
		"local SGD": func(cfg *Config) { cfg.DDP.AverageEvery = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := small(size, epochs, perEpoch)
			change(&cfg)
			for _, steps := range []int{1, 3, 4, 7, 8, 12, 99} {
				straight, c := newCheckpoints(), newCheckpoints()
				open := func(c checkpoints, most int) func(int, *Config, *Env) {
					return func(_ int, cfg *Config, env *Env) {
						cfg.MaxSteps = most
						env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true
					}
				}
				cut := mustTrain(t, size, cfg, open(c, steps))[0].Result
				if want := int64(min(steps, epochs*perEpoch)); cut.Steps != want || cut.Stopped || cut.Early || c.latest(t).Step != want {
					t.Fatalf("max_steps %d: %+v, and the newest checkpoint is of step %d", steps, cut, c.latest(t).Step)
				}
				if again := mustTrain(t, size, cfg, open(c, steps))[0].Result; again.Steps != cut.Steps {
					t.Errorf("max_steps %d: resumed, it is at step %d", steps, again.Steps)
				}
				mustTrain(t, size, cfg, open(c, 0))
				if name != "ddp" { // local SGD has averaged once more than the straight run
					continue
				}
				mustTrain(t, size, cfg, open(straight, 0))
				sameState(t, c.latest(t), straight.latest(t))
			}
		})
	}
}

// sameModel compares parameters and buffers bit for bit.
func sameModel(t *testing.T, got, want *checkpoint.State) {
	t.Helper()
	compared := 0
	for _, tensor := range want.Tensors {
		if !strings.HasPrefix(tensor.Name, "model.") {
			continue
		}
		compared++
		if d := distance(floatsOf(t, got, tensor.Name), floatsOf(t, want, tensor.Name)); d != 0 {
			t.Errorf("%s differs by %.2g", tensor.Name, d)
		}
	}
	if compared == 0 {
		t.Error("the checkpoint has no model")
	}
}

// The bits of a trained model depend neither on the buckets of gradients, nor on when they are sent, nor on the transport, nor on which
// ranks keep the optimizer's state.
func TestBitsOfParametersDependOnNoSetting(t *testing.T) { // without the race detector
	ways := []struct {
		name   string
		over   string
		change func(*Config)
	}{
		{"a bucket for each parameter", "local", func(c *Config) { c.DDP.BucketMB = 0.0001 }},
		{"some parameters in a bucket", "local", func(c *Config) { c.DDP.BucketMB = 0.0005 }},
		{"no overlap", "local", func(c *Config) { c.DDP.Overlap = false }},
		{"no overlap, small buckets", "tcp", func(c *Config) { c.DDP.Overlap, c.DDP.BucketMB = false, 0.0005 }},
		{"over TCP", "tcp", func(*Config) {}},
		{"over shared memory", "shm", func(c *Config) { c.DDP.BucketMB = 0.001 }},
		{"unused parameters sought", "local", func(c *Config) { c.DDP.FindUnused = true }},
		{"compared every step", "local", func(c *Config) { c.DDP.CheckEverySteps = 1 }},
		{"ZeRO", "local", func(c *Config) { c.Optimizer.Zero = true }},
		{"ZeRO, small buckets", "shm", func(c *Config) { c.Optimizer.Zero, c.DDP.BucketMB = true, 0.0001 }},
	}
	jobs := map[string]func(*Config){
		"sgd":      func(*Config) {},
		"adamw":    func(c *Config) { c.Optimizer.Kind, c.Optimizer.LR, c.ClipNorm, c.Accumulate = "adamw", 0.01, 0.5, 2 },
		"float16":  func(c *Config) { c.Precision, c.DDP.Compress = "float16", "float16" },
		"bfloat16": func(c *Config) { c.DDP.Compress = "bfloat16" },
		"int8":     func(c *Config) { c.DDP.Compress = "int8" },
		"powersgd": func(c *Config) { c.DDP.Compress, c.DDP.Rank, c.DDP.StartStep = "powersgd", 2, 2 },
	}
	for name, job := range jobs {
		for _, world := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s of %d ranks", name, world), func(t *testing.T) {
				cfg := deepJob()
				job(&cfg)
				want := complete(t, "local", world, cfg, nil)
				for _, way := range ways {
					t.Run(way.name, func(t *testing.T) {
						cfg := cfg
						way.change(&cfg)
						sameModel(t, complete(t, way.over, world, cfg, nil).state, want.state)
					})
				}
			})
		}
	}
}

// stepping returns a trainer of one rank that is about to take its first step.
func stepping(t testing.TB, cfg Config) *trainer {
	t.Helper()
	tr := newTrainer(cfg, Env{Comm: mpi.Self()})
	if err := tr.setUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.close)
	tr.beginEpoch()
	return tr
}

// dense returns a job of one layer from 20 inputs to 1 output, on 4,096 generated rows in batches of 32.
func dense() Config {
	cfg := DefaultConfig()
	cfg.BatchSize, cfg.Loss = 32, "mse"
	cfg.Model.Kind, cfg.Data.Kind = "dense", "generated"
	return cfg
}

func TestAStepAllocatesNothing(t *testing.T) { // without the race detector
	tr := stepping(t, dense())
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if err := tr.step(ctx); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a step allocates %v times, want none", n)
	}
}

func benchmarkStep(b *testing.B, cfg Config) {
	tr := stepping(b, cfg)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if tr.stepsLeft() == 0 {
			tr.at = tr.at.nextEpoch()
			tr.beginEpoch()
		}
		if err := tr.step(ctx); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*cfg.BatchSize)/b.Elapsed().Seconds(), "samples/s")
}

func BenchmarkStepDense(b *testing.B) { benchmarkStep(b, dense()) }

func BenchmarkStepMLP(b *testing.B) {
	cfg := mnist(b)
	cfg.Optimizer.Momentum = 0.9
	benchmarkStep(b, cfg)
}

// clocked is a library that adds up the time spent in its matrix products.
type clocked struct {
	blas.Library
	spent time.Duration
}

func (c *clocked) Sgemm(tA, tB gonum.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32,
	out []float32, ldc int) {
	start := time.Now()
	c.Library.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, out, ldc)
	c.spent += time.Since(start)
}

// BenchmarkTraining trains the models of scripts/bench-train. Its %outside is the script's "outside products", the share of time that is
// not spent in matrix products.
func BenchmarkTraining(b *testing.B) {
	b.Run("library", func(b *testing.B) {
		_, info, err := blas.Open(blas.Config{Library: blas.Auto})
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("matrix products: %v", info)
	})
	for _, model := range []string{"dense", "mlp", "cnn", "gpt"} {
		b.Run(model, func(b *testing.B) {
			tr := stepping(b, benchmarkConfig(b, model))
			products := &clocked{Library: tr.blas}
			tr.pass.BLAS = products
			trainOn := func() {
				if tr.stepsLeft() == 0 {
					tr.at = tr.at.nextEpoch()
					tr.beginEpoch()
				}
				if err := tr.step(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			trainOn() // allocates buffers
			products.spent = 0
			b.ReportAllocs()
			for b.Loop() {
				trainOn()
			}
			b.ReportMetric(float64(b.N*tr.cfg.BatchSize)/b.Elapsed().Seconds(), "samples/s")
			b.ReportMetric(100*(1-products.spent.Seconds()/b.Elapsed().Seconds()), "%outside")
		})
	}
}

// benchmarkConfig returns a job that trains a model on noise.
func benchmarkConfig(b *testing.B, model string) Config {
	const images, sequences = 1024, 64
	cfg := DefaultConfig()
	cfg.Optimizer.LR, cfg.Optimizer.Momentum = 0.01, 0.9
	cfg.Data.Kind, cfg.Data.Shuffle = "npy", false
	cfg.Model.Kind = model
	dir := b.TempDir()
	cfg.Data.InputFile, cfg.Data.TargetFile = filepath.Join(dir, "x.npy"), filepath.Join(dir, "y.npy")
	switch model {
	case "dense":
		cfg.BatchSize, cfg.Loss = 32, "mse"
		writeNPY(b, dir, "x.npy", []int{4096, 20}, uniform(4096*20))
		writeNPY(b, dir, "y.npy", []int{4096, 1}, uniform(4096))
	case "mlp", "cnn":
		labels := make([]int64, images)
		for i := range labels {
			labels[i] = int64(i % 10)
		}
		if model == "mlp" {
			cfg.Model.Hidden = []int{512, 256}
		}
		writeNPY(b, dir, "x.npy", []int{images, 1, 28, 28}, uniform(images*28*28))
		writeNPY(b, dir, "y.npy", []int{images}, labels)
	case "gpt":
		cfg.BatchSize = 8
		cfg.Data.Kind, cfg.Data.Path = "text", filepath.Join(dir, "text")
		text := make([]byte, sequences*cfg.Model.Context+1)
		for i := range text {
			text[i] = byte(mix(uint64(i), 1))
		}
		if err := os.WriteFile(cfg.Data.Path, text, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return cfg
}

// uniform returns n numbers from -1 to 1, the same in every run.
func uniform(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(mix(uint64(i), 0)>>40)/(1<<23) - 1
	}
	return x
}

// Two ranks get as many digits right as PyTorch 1.13 did with the same model, rows and steps (testdata/train.py): 430 of 500.
func TestDigitsAreLearntAsByPyTorch(t *testing.T) { // without the race detector
	cfg := mnist(t)
	cfg.Epochs, cfg.BatchSize = 4, 32
	cfg.Optimizer.LR, cfg.Optimizer.Momentum = 0.02, 0.9
	r := mustTrain(t, 2, cfg, nil)[0]
	t.Logf("%+v\n%s", r.Result, r.out.String())
	if !r.Evaluated || math.Abs(r.Accuracy-0.86) > 0.01 {
		t.Errorf("accuracy %v after %d epochs, PyTorch has 0.86", r.Accuracy, r.Epochs)
	}
	if line := regexp.MustCompile(
		`rank 0 \| epoch 3 \| loss 0\.\d{4} \| samples/s \d+ .*\| eval loss 0\.\d{4} \| accuracy 8\d\.\d\d %\n`); !line.MatchString(
		r.out.String()) {
		t.Errorf("printed\n%s\nwithout a line like %s", r.out.String(), line)
	}
}
