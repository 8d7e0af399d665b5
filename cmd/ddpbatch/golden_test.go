package main

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/testkit/golden"
)

// TestTrainingIsPyTorchsGolden runs testdata/golden/*.txtar, in which a user repeats a training that PyTorch has done.
func TestTrainingIsPyTorchsGolden(t *testing.T) {
	trainings := map[string]golden.Training{"1": golden.Read(t, 1), "2": golden.Read(t, 2)}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "golden"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise the race detector takes a second to end each command
			trainings["1"].Write(t, env.WorkDir)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"matches": func(ts *testscript.TestScript, neg bool, args []string) {
				worst := farthest(ts, trainings[args[0]], ts.MkAbs(args[1]))
				if near := worst <= golden.Tolerance; near == neg {
					ts.Fatalf("parameters of %s are up to %v from PyTorch's", args[1], worst)
				}
			},
			"losses": func(ts *testscript.TestScript, _ bool, args []string) {
				want := 0.0
				for _, step := range trainings[args[0]].Steps {
					want += step.Loss() / float64(len(trainings[args[0]].Steps))
				}
				if got := lastLoss(ts, args[1]); math.Abs(got-want) > golden.Tolerance {
					ts.Fatalf("the mean loss is %v, PyTorch's is %v", got, want)
				}
			},
		},
	})
}

// farthest returns the largest difference between the parameters in a file and the final ones of g.
func farthest(ts *testscript.TestScript, g golden.Training, path string) float64 {
	tensors, _, err := safetensors.ReadFile(path)
	ts.Check(err)
	if len(tensors) != len(g.Final) {
		ts.Fatalf("%s has %d tensors, want %d", path, len(tensors), len(g.Final))
	}
	worst := 0.0
	for _, tensor := range tensors {
		at := slices.Index(golden.Names(), tensor.Name)
		if at < 0 || !slices.Equal(tensor.Shape, g.Final[at].Shape) {
			ts.Fatalf("%s has %s of the shape %v", path, tensor.Name, tensor.Shape)
		}
		v := make([]float32, len(g.Final[at].Data))
		ts.Check(tensor.Float32s(v))
		for i, x := range v {
			worst = max(worst, math.Abs(float64(x)-float64(g.Final[at].Data[i]))) // NaN stays
		}
	}
	return worst
}

// lastLoss returns the loss in the last line of metrics. All lines must be of the last step.
func lastLoss(ts *testscript.TestScript, pattern string) float64 {
	f, err := os.Open(oneFile(ts, pattern))
	ts.Check(err)
	defer f.Close()
	var line struct {
		Step int64   `json:"step"`
		Loss float64 `json:"loss"`
	}
	for lines := json.NewDecoder(f); ; {
		if err := lines.Decode(&line); err == io.EOF {
			return line.Loss
		} else if err != nil || line.Step != 5 {
			ts.Fatalf("%s has a line of step %d, want step 5 alone: %v", pattern, line.Step, err)
		}
	}
}
