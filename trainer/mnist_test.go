package trainer

import (
	"regexp"
	"testing"

	"ddpbatch/internal/testenv"
	"ddpbatch/internal/testkit/thin"
)

// mnist is the job of DESIGN §4: an MLP 784-128-10 on the real digits, 9,000 to train and 1,000
// to evaluate.
func mnist(t testing.TB) Config {
	cfg := DefaultConfig()
	cfg.Data.Kind = "mnist"
	cfg.Data.Images = testenv.Shared(t, "data", "mnist", "t10k-images-idx3-ubyte.gz")
	cfg.Data.Labels = testenv.Shared(t, "data", "mnist", "t10k-labels-idx1-ubyte.gz")
	cfg.Data.Train, cfg.Data.Eval = "0:9000", "9000:10000"
	return cfg
}

func TestDigits(t *testing.T) {
	if thin.Race {
		t.Skip("takes half a minute with the race detector, which has watched two ranks by then in many tests")
	}
	cfg := mnist(t)
	cfg.Epochs, cfg.BatchSize = 4, 32
	cfg.Optimizer.LR, cfg.Optimizer.Momentum = 0.02, 0.9
	r := mustTrain(t, 2, cfg, nil)[0]
	t.Logf("%+v\n%s", r.Result, r.out.String())
	if !r.Evaluated || r.Accuracy <= 0.92 {
		t.Errorf("accuracy %v after %d epochs, want more than 0.92", r.Accuracy, r.Epochs)
	}
	if line := regexp.MustCompile(`rank 0 \| epoch 3 \| loss 0\.\d{4} \| samples/s \d+ .*\| accuracy 9\d\.\d\d %\n`); !line.MatchString(r.out.String()) {
		t.Errorf("printed\n%s\nwithout a line like %s", r.out.String(), line)
	}
}
