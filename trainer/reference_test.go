package trainer

import (
	_ "embed"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/testkit/torch"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/internal/mt19937"
)

//go:embed testdata/train.py
var trainScript string

// reference is what PyTorch came to in one type of numbers.
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
	dir   string // what the paths in cfg are relative to
	steps int    // 0: all
	init  string // a file for both sides; empty: each makes its own from the seed
	exact bool   // train in float64, too, and return the parameters
}

// runTorch trains all cases in one process, and returns each one's results by type.
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

// job is the case in the script's words.
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

// writeInit writes the random parameters that cfg's model begins with to a file.
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

// generatedSpec is that of a job's generated data.
func generatedSpec(cfg Config) data.Spec {
	return specOf(cfg.Data.Inputs, cfg.Data.Outputs)
}

func specOf(inputs, outputs int) data.Spec { return data.Spec{Inputs: inputs, Outputs: outputs} }

// normals is n numbers of the normal distribution, the same in every run.
func normals(seed uint64, n int) []float32 {
	random := rand.New(rand.NewPCG(seed, 0))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	return v
}

// classesOf is n labels below some number, each of which is there.
func classesOf(seed uint64, n, below int) []int64 {
	random := mt19937.New(seed)
	v := make([]int64, n)
	for i := range v {
		if v[i] = int64(i); i >= below {
			v[i] = int64(random.Uint32()) % int64(below)
		}
	}
	return v
}

// distance is the largest difference of two lists of numbers; infinite where one is no number or they differ in length.
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
