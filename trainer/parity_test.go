package trainer

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mathext/prng"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/testkit/golden"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/torch"
	"ddpbatch/trainer/data"
)

// rounding limits the trainer's error to this many times PyTorch's own error. Both add the same float32 numbers in different orders, and
// training amplifies the differences in the same way, for example in Adam if a gradient is nearly 0. So the error of PyTorch in float32,
// compared with PyTorch in float64, shows what to expect. The largest of some hundred errors varies by a small factor. (If the true
// gradient is 0, as for the bias of a convolution before batch normalization, both sides' Adam takes full steps from rounding errors.)
const rounding = 4

// leastError replaces a PyTorch error that is by chance 0 or nearly 0. It is some units in the last place of numbers around 1.
const leastError = 3e-7

// The losses of all steps, and the parameters and buffers after the last one, are PyTorch's, for every optimizer and kind of model. The
// initial values are those that PyTorch makes from the same seed, and the order of rows is that of its DistributedSampler. Several ranks
// are compared with one process that has all their rows in one batch, since the mean over ranks is the mean over that batch.
func TestTrainingIsPyTorchs(t *testing.T) { // without the race detector
	dir := t.TempDir()
	const rows = 50
	writeNPY(t, dir, "x.npy", []int{rows, 6}, normals(1, rows*6))
	writeNPY(t, dir, "y.npy", []int{rows, 3}, normals(2, rows*3))
	writeNPY(t, dir, "images.npy", []int{rows, 2, 9, 8}, normals(3, rows*2*9*8))
	writeNPY(t, dir, "classes.npy", []int{rows}, classesOf(4, rows, 5))
	text := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. \xff"), 12)
	if err := os.WriteFile(filepath.Join(dir, "text"), text, 0o600); err != nil {
		t.Fatal(err)
	}

	regression := func(c *Config) { c.Loss, c.Data.InputFile, c.Data.TargetFile = "mse", "x.npy", "y.npy" }
	classes := func(c *Config) { c.Data.InputFile, c.Data.TargetFile = "x.npy", "classes.npy" }
	images := func(c *Config) {
		c.Data.InputFile, c.Data.TargetFile = "images.npy", "classes.npy"
		c.Model.Kind, c.Model.Channels, c.Model.Hidden = "cnn", []int{4, 6}, []int{10}
	}
	adam := func(c *Config, kind string) { c.Optimizer.Kind, c.Optimizer.LR = kind, 0.01 }

	tests := []struct {
		name   string
		world  int
		change func(*Config)
	}{
		{"sgd", 1, regression},
		{"sgd of 3 ranks, which are padded", 3, regression},
		{"sgd of 3 ranks, rows dropped", 3, func(c *Config) { regression(c); c.Data.Remainder = "drop" }},
		{"nesterov", 2, func(c *Config) {
			regression(c)
			c.Optimizer.Momentum, c.Optimizer.Nesterov, c.Optimizer.WeightDecay, c.Model.Activation = 0.9, true, 0.01, "tanh"
		}},
		{"dampening", 1, func(c *Config) { classes(c); c.Optimizer.Momentum, c.Optimizer.Dampening = 0.9, 0.5 }},
		{"adam", 1, func(c *Config) { classes(c); adam(c, "adam"); c.Optimizer.WeightDecay = 0.01 }},
		{"adam, not shuffled", 2, func(c *Config) { regression(c); adam(c, "adam"); c.Data.Shuffle = false }},
		{"adamw", 2, func(c *Config) { classes(c); adam(c, "adamw"); c.Optimizer.WeightDecay = 0.1 }},
		{"adamw, cosine, clipped, accumulated", 2, func(c *Config) {
			classes(c)
			adam(c, "adamw")
			c.Schedule.Kind, c.Schedule.MinLR, c.ClipNorm, c.Accumulate, c.BatchSize = "cosine", 0.001, 0.3, 3, 3
		}},
		{"cnn", 2, func(c *Config) { images(c); c.Optimizer.Momentum = 0.9 }},
		{"cnn with batch norm", 1, func(c *Config) { images(c); adam(c, "adam"); c.Model.BatchNorm = true }},
		{"cnn with batch norm over ranks", 2, func(c *Config) { images(c); c.Model.BatchNorm, c.DDP.SyncBatchNorm = true, true }},
		{"gpt", 2, func(c *Config) {
			adam(c, "adamw")
			c.Data.Kind, c.Data.Path, c.BatchSize = "text", "text", 4
			c.Model.Kind, c.Model.Layers, c.Model.Heads, c.Model.Width, c.Model.Context = "gpt", 2, 2, 16, 12
		}},
	}
	var cases []torchCase
	for i, test := range tests {
		cfg := DefaultConfig()
		cfg.Epochs, cfg.BatchSize, cfg.Seed, cfg.Model.Hidden, cfg.Data.Kind = 2, 8, uint64(i), []int{7, 5}, "npy"
		cfg.Optimizer.LR = 0.05
		test.change(&cfg)
		c := torchCase{cfg: cfg, world: test.world, dir: dir, exact: true}
		if cfg.Model.Kind == "gpt" { // PyTorch has no GPT whose initial values could be the same
			c.init = filepath.Join(dir, "init.safetensors")
			c.cfg.Init = c.init
			writeInit(t, cfg, data.Spec{Symbols: 256, Classes: 256}, c.init)
		}
		cases = append(cases, c)
	}
	results := runTorch(t, cases...)
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) { compare(t, cases[i], results[i]) })
	}
}

// compare compares a training run with PyTorch's.
func compare(t *testing.T, c torchCase, result map[string]reference) {
	first := complete(t, "local", c.world, c.cfg, func(_ int, cfg *Config, env *Env) {
		cfg.Optimizer.LR, cfg.Optimizer.WeightDecay, cfg.Schedule.MinLR = 1e-30, 0, 0 // parameters keep their initial values
		env.WorkDir = c.dir
	})
	got := complete(t, "local", c.world, c.cfg, func(_ int, _ *Config, env *Env) { env.WorkDir = c.dir })
	near, exact := result["float32"], result["float64"]
	if len(near.After) == 0 || len(near.Losses) < 4 {
		t.Fatalf("PyTorch took %d steps and has %d tensors", len(near.Losses), len(near.After))
	}
	check := func(what string, d, own float64) {
		if d > rounding*max(own, leastError) {
			t.Errorf("%s: differs by %.2g from PyTorch in float64, whose float32 differs by %.2g", what, d, own)
		}
	}
	check("losses", distance(got.losses, exact.Losses), distance(near.Losses, exact.Losses))
	models := 0
	for _, tensor := range got.state.Tensors {
		name, ok := strings.CutPrefix(tensor.Name, "model.")
		if !ok {
			continue
		}
		models++
		buffer := strings.Contains(name, "running_")
		if d := distance(floatsOf(t, first.state, tensor.Name), near.Before[name]); d > 1e-7 && !buffer {
			t.Errorf("%s: the initial value differs by %v", name, d)
		}
		check(name, distance(floatsOf(t, got.state, tensor.Name), exact.After[name]), distance(near.After[name], exact.After[name]))
	}
	if models != len(near.After) {
		t.Errorf("%d tensors, PyTorch has %d", models, len(near.After))
	}
}

// On MNIST, with 1,000 digits to train on and 500 to evaluate, models get as many digits right as PyTorch's, within 2 digits. Both begin
// with the same parameters and take the same steps, so that they can differ only by rounding.
func TestDigitsAreAsGoodAsPyTorchs(t *testing.T) { // without the race detector
	if thin.Race {
		t.Skip("has one rank alone: the race detector would have nothing to watch")
	}
	base := mnist(t)
	base.Epochs, base.BatchSize, base.Optimizer.Momentum, base.Optimizer.LR = 8, 64, 0.9, 0.02
	for name, change := range map[string]func(*testing.T, *Config){
		"mlp": func(_ *testing.T, c *Config) { c.Model.Hidden = []int{128} },
		"cnn": func(_ *testing.T, c *Config) { c.Model.Kind, c.Model.Channels, c.Epochs = "cnn", []int{16, 32}, 3 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := base
			change(t, &cfg)
			got := complete(t, "local", 1, cfg, nil)
			want := runTorch(t, torchCase{cfg: cfg, world: 1})[0]["float32"]
			t.Logf("%.2f %% right, PyTorch %.2f %%; loss %.4f in the last step, PyTorch %.4f",
				100*got.Accuracy, 100*want.Accuracy, got.losses[len(got.losses)-1], want.Losses[len(want.Losses)-1])
			if d := math.Abs(got.Accuracy - want.Accuracy); d > 0.005 || want.Accuracy < 0.8 {
				t.Errorf("%.2f %% right, PyTorch %.2f %%", 100*got.Accuracy, 100*want.Accuracy)
			}
			if len(got.losses) != len(want.Losses) {
				t.Errorf("%d steps, PyTorch %d", len(got.losses), len(want.Losses))
			}
		})
	}
}

// A small GPT on Shakespeare has PyTorch's loss after the same steps, within 2 %. (The losses agree much better than that, but the steps
// amplify rounding.)
func TestShakespeareLossIsNearPyTorchs(t *testing.T) { // without the race detector
	if thin.Race {
		t.Skip("has one rank alone: the race detector would have nothing to watch")
	}
	if testing.Short() {
		t.Skip("-short: it trains for long")
	}
	path := sample(t, "coriolanus.txt")
	const steps = 60
	cfg := DefaultConfig()
	cfg.Epochs, cfg.BatchSize = 1, 8
	cfg.Data.Kind, cfg.Data.Path, cfg.Data.Train = "text", path, rowRange(0, 8*steps)
	cfg.Model.Kind, cfg.Model.Layers, cfg.Model.Heads, cfg.Model.Width, cfg.Model.Context = "gpt", 2, 4, 64, 64
	cfg.Optimizer.Kind, cfg.Optimizer.LR, cfg.Optimizer.WeightDecay = "adamw", 0.003, 0.01
	cfg.Init = filepath.Join(t.TempDir(), "init.safetensors")
	writeInit(t, cfg, data.Spec{Symbols: 256, Classes: 256}, cfg.Init)

	got := complete(t, "local", 1, cfg, nil)
	want := runTorch(t, torchCase{cfg: cfg, world: 1, init: cfg.Init})[0]["float32"]
	if len(got.losses) != steps || len(want.Losses) != steps {
		t.Fatalf("%d and %d steps, want %d", len(got.losses), len(want.Losses), steps)
	}
	last, first, theirs := got.losses[steps-1], got.losses[0], want.Losses[steps-1]
	t.Logf("loss %.4f in the first step and %.4f in the last, PyTorch %.4f", first, last, theirs)
	// In the first step all 256 symbols are about equally likely, so the loss is log 256 = 5.55.
	if math.Abs(last-theirs) > 0.02*theirs || theirs > 3.3 || math.Abs(first-math.Log(256)) > 0.1 {
		t.Errorf("loss %.4f in the first step and %.4f in the last, PyTorch %.4f", first, last, theirs)
	}
}

//go:embed testdata/train.py
var trainScript string

// reference holds PyTorch's results in one type of numbers.
type reference struct {
	Losses   []float64
	Accuracy float64
	Before   map[string][]float64
	After    map[string][]float64
}

// torchCase is a job for testdata/train.py.
type torchCase struct {
	cfg   Config
	world int
	dir   string // the folder that the paths in cfg are relative to
	steps int    // 0: all
	init  string // a file of initial values for both sides; empty: each side makes them from the seed
	exact bool   // also train in float64, and return the parameters
}

// runTorch trains all cases in one Python process, and returns each case's results by type of numbers.
func runTorch(t testing.TB, cases ...torchCase) []map[string]reference {
	t.Helper()
	var jobs []any
	for _, c := range cases {
		jobs = append(jobs, c.job(t))
	}
	text, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cases.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	torch.Run(t, trainScript, dir)
	text, err = os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var results []map[string]reference
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	return results
}

// job returns the case in the form that the script reads.
func (c torchCase) job(t testing.TB) map[string]any {
	d := c.cfg.Data
	words := map[string]any{
		"kind": d.Kind, "shuffle": d.Shuffle, "remainder": d.Remainder, "context": c.cfg.Model.Context,
		"images": below(c.dir, d.Images), "labels": below(c.dir, d.Labels), "path": below(c.dir, d.Path),
		"inputs": below(c.dir, d.InputFile), "targets": below(c.dir, d.TargetFile),
		"train": bounds(t, d.Train), "eval": bounds(t, d.Eval),
	}
	dtypes := []string{"float32"}
	if c.exact {
		dtypes = append(dtypes, "float64")
	}
	return map[string]any{
		"model": c.cfg.Model, "data": words, "optimizer": c.cfg.Optimizer, "schedule": c.cfg.Schedule.Kind, "min_lr": c.cfg.Schedule.MinLR,
		"epochs": c.cfg.Epochs, "batch_size": c.cfg.BatchSize, "accumulate": c.cfg.Accumulate, "world": c.world, "seed": c.cfg.Seed,
		"clip_norm": c.cfg.ClipNorm, "steps": c.steps, "init": c.init, "dtypes": dtypes, "values": c.exact,
	}
}

func bounds(t testing.TB, text string) []int {
	t.Helper()
	if text == "" {
		return nil
	}
	r, err := data.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return []int{r.First, r.End}
}

// writeInit writes the random initial parameters of cfg's model to a file.
func writeInit(t testing.TB, cfg Config, spec data.Spec, path string) {
	t.Helper()
	model, err := newModel(cfg.Model, spec, cfg.Seed, nil)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []checkpoint.Tensor
	for _, p := range model.Params() {
		tensors = append(tensors, checkpoint.Float32Tensor(p.Name, p.Shape, p.Value))
	}
	if err := safetensors.Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
}

// ones replaces every value in a file of initial parameters by 1.
func ones(t testing.TB, path string) {
	t.Helper()
	tensors, _, err := safetensors.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, tensor := range tensors {
		v := make([]float32, elements(tensor.Shape))
		for j := range v {
			v[j] = 1
		}
		tensors[i] = checkpoint.Float32Tensor(tensor.Name, tensor.Shape, v)
	}
	if err := safetensors.Write(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
}

// generatedSpec returns the Spec of a job's generated data.
func generatedSpec(cfg Config) data.Spec {
	return specOf(cfg.Data.Inputs, cfg.Data.Outputs)
}

func specOf(inputs, outputs int) data.Spec { return data.Spec{Inputs: inputs, Outputs: outputs} }

// normals returns n numbers of the normal distribution, the same in every run.
func normals(seed uint64, n int) []float32 {
	random := rand.New(rand.NewPCG(seed, 0))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	return v
}

// classesOf returns n labels below the given number. Each label occurs.
func classesOf(seed uint64, n, below int) []int64 {
	random := prng.NewMT19937()
	random.Seed(seed)
	v := make([]int64, n)
	for i := range v {
		if v[i] = int64(i); i >= below {
			v[i] = int64(random.Uint32()) % int64(below)
		}
	}
	return v
}

// distance returns the largest difference of two lists of numbers. It is infinite if a number is not finite or the lengths differ.
func distance[A, B float32 | float64](a []A, b []B) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	most := 0.0
	for i, x := range a {
		d := math.Abs(float64(x) - float64(b[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		most = max(most, d)
	}
	return most
}

// A run from files as a user would have them gives the losses, gradients and final parameters of PyTorch's DistributedDataParallel.
func TestTrainingIsPyTorchsGolden(t *testing.T) {
	for _, world := range []int{1, 2} {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			g := golden.Read(t, world)
			dir := t.TempDir()
			g.Write(t, dir)
			cfg := DefaultConfig()
			cfg.Epochs, cfg.BatchSize, cfg.Loss, cfg.Init = 1, 8/world, "mse", "init.safetensors"
			cfg.Model.Hidden = []int{8}
			cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile = "npy", "x.npy", "y.npy"
			cfg.Data.Shuffle, cfg.Data.Train = false, "0:40"
			cfg.Optimizer.LR, cfg.Optimizer.Momentum = 0.1, 0.9

			got := complete(t, "tcp", world, cfg, func(_ int, _ *Config, env *Env) { env.WorkDir, env.EverySteps = dir, 1 })
			for s, step := range g.Steps {
				if math.Abs(got.losses[s]-step.Loss()) > golden.Tolerance {
					t.Errorf("step %d: loss %v, PyTorch's is %v", s+1, got.losses[s], step.Loss())
				}
			}
			for i, name := range golden.Names() {
				if d := distance(floatsOf(t, got.state, "model."+name), g.Final[i].Data); d > golden.Tolerance {
					t.Errorf("%s differs by %v in the end", name, d)
				}
				for s := range int64(2) {
					if d := distance(gradient(t, got.checkpoints, s+1, name), g.Steps[s].Grads[i]); d > golden.Tolerance {
						t.Errorf("the gradient of %s differs by %v in step %d", name, d, s+1)
					}
				}
			}
		})
	}
}

// gradient returns the gradient of a step. It computes it from SGD's momentum, which the step changes from v to 0.9 v + gradient.
func gradient(t testing.TB, c checkpoints, step int64, name string) []float32 {
	t.Helper()
	momentum := func(step int64) []float32 {
		s, err := c.open(t).Load(t.Context(), step)
		if err != nil {
			t.Fatal(err)
		}
		return floatsOf(t, s, "optimizer.momentum_buffer."+name)
	}
	g := momentum(step)
	if step > 1 {
		for i, v := range momentum(step - 1) {
			g[i] -= 0.9 * v
		}
	}
	return g
}
