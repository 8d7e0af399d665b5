package trainer

import (
	"math"
	"path/filepath"
	"regexp"
	"testing"
)

// mnist is an MLP 784-128-10 on real digits, 1,000 to train and 500 to evaluate.
func mnist(t testing.TB) Config {
	cfg := DefaultConfig()
	cfg.Data.Kind = "mnist"
	cfg.Data.Images = sample(t, "mnist", "images-idx3-ubyte.gz")
	cfg.Data.Labels = sample(t, "mnist", "labels-idx1-ubyte.gz")
	cfg.Data.Train, cfg.Data.Eval = "0:1000", "1000:1500"
	return cfg
}

// sample is the absolute path of real data in data/testdata.
func sample(t testing.TB, parts ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"data", "testdata"}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Two ranks get as many digits right as PyTorch 1.13 did with the same model, rows and steps (testdata/train.py): 430 of 500.
func TestDigits(t *testing.T) { // without the race detector
	cfg := mnist(t)
	cfg.Epochs, cfg.BatchSize = 4, 32
	cfg.Optimizer.LR, cfg.Optimizer.Momentum = 0.02, 0.9
	r := mustTrain(t, 2, cfg, nil)[0]
	t.Logf("%+v\n%s", r.Result, r.out.String())
	if !r.Evaluated || math.Abs(r.Accuracy-0.86) > 0.01 {
		t.Errorf("accuracy %v after %d epochs, PyTorch has 0.86", r.Accuracy, r.Epochs)
	}
	if line := regexp.MustCompile(`rank 0 \| epoch 3 \| loss 0\.\d{4} \| samples/s \d+ .*\| accuracy 8\d\.\d\d %\n`); !line.MatchString(r.out.String()) {
		t.Errorf("printed\n%s\nwithout a line like %s", r.out.String(), line)
	}
}
