package trainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/mpi"
)

// ticking returns a clock that advances by a second whenever it is read.
func ticking() func() time.Time {
	now := time.Date(2024, 2, 29, 23, 59, 0, 0, time.UTC)
	return func() time.Time {
		now = now.Add(time.Second)
		return now
	}
}

func TestOutputShowsEveryEpoch(t *testing.T) {
	// An epoch of 4,096 rows on 4 ranks in batches of 32 has 32 steps.
	cfg := DefaultConfig()
	cfg.Epochs, cfg.BatchSize, cfg.Loss = 2, 32, "mse"
	cfg.Model.Kind, cfg.Data.Kind = "dense", "generated"
	cfg.Data.Noise = 0.1
	world := mustTrain(t, 4, cfg, func(_ int, _ *Config, env *Env) { env.Clock = ticking() })

	for i, r := range world {
		for epoch := range 2 {
			if line := fmt.Sprintf("rank %d | epoch %d | batch size 32 | steps 32\n", i, epoch); !strings.Contains(r.out.String(), line) {
				t.Errorf("rank %d printed %q, without %q", i, r.out.String(), line)
			}
		}
		if n := strings.Count(r.out.String(), "\n"); i > 0 && n != 2 {
			t.Errorf("rank %d printed %d lines, want one an epoch", i, n)
		}
	}
	// The clock is read twice in a step, so the 128 rows of a step take one second.
	want := regexp.MustCompile(`^rank 0 \| matrix products by .* \| float32
rank 0 \| epoch 0 \| batch size 32 \| steps 32
rank 0 \| epoch 0 \| loss \d\.\d{4} \| samples/s 128 \| communication \d+\.\d % \| overlap \d+ %
rank 0 \| epoch 1 \| batch size 32 \| steps 32
rank 0 \| epoch 1 \| loss 0\.01\d\d \| samples/s 128 \| communication \d+\.\d % \| overlap \d+ %
$`)
	if got := world[0].out.String(); !want.MatchString(got) {
		t.Errorf("rank 0 printed\n%s\nwant\n%s", got, want)
	}
	// The noise of deviation 0.1 leaves a mean squared error of 0.01.
	if r := world[0].Result; r.Steps != 64 || r.Epochs != 2 || r.Loss > 0.02 || r.Evaluated || r.Stopped {
		t.Errorf("%+v", r)
	}
}

func TestEvaluationIsPrinted(t *testing.T) {
	world := mustTrain(t, 2, small(2, 3, 5), func(_ int, cfg *Config, env *Env) { cfg.Evaluate.EveryEpochs = 2 })
	out := world[0].out.String()
	for epoch, want := range []bool{false, true, true} { // the last epoch is always evaluated
		line := regexp.MustCompile(fmt.Sprintf(`epoch %d \| loss \S+ \| samples/s \d+ .*\| eval loss \d\.\d{4}\n`, epoch))
		if line.MatchString(out) != want {
			t.Errorf("evaluated after epoch %d is %v, want %v:\n%s", epoch, !want, want, out)
		}
	}
}

// An evaluation counts every row once, however many ranks share the rows, so worlds of all sizes agree.
func TestEvaluationIsExact(t *testing.T) {
	cfg := small(1, 1, 5)
	cfg.Optimizer.LR = 1e-30 // all worlds keep the initial parameters
	cfg.BatchSize = 2
	var want float64
	for size := 1; size <= 4; size++ {
		r := mustTrain(t, size, cfg, nil)[0]
		if !r.Evaluated || size == 1 && r.EvalLoss == 0 {
			t.Fatalf("%+v", r.Result)
		}
		if size == 1 {
			want = r.EvalLoss
		}
		// The float64 sums of 5 rows are in another order.
		if d := r.EvalLoss - want; d > 1e-12 || d < -1e-12 {
			t.Errorf("%d ranks: eval loss %v, one rank has %v", size, r.EvalLoss, want)
		}
	}
}

func TestMetricsHaveALinePerInterval(t *testing.T) {
	var lines bytes.Buffer
	cfg := small(2, 2, 12)
	mustTrain(t, 2, cfg, func(rank int, _ *Config, env *Env) {
		env.Clock, env.Attempt = ticking(), 7
		if rank == 0 {
			env.Metrics = &lines
		}
	})
	type line struct {
		Time        time.Time
		Attempt     int
		Step, Steps int64
		Epoch       int
		Loss, LR    float64
		SamplesPerS float64  `json:"samples_per_s"`
		CommShare   float64  `json:"comm_share"`
		Overlap     float64  `json:"overlap"`
		LeftS       float64  `json:"left_s"`
		EvalLoss    *float64 `json:"eval_loss"`
		EpochLoss   *float64 `json:"epoch_loss"`
		Accuracy    *float64
	}
	var steps []int64
	decoder := json.NewDecoder(&lines)
	decoder.DisallowUnknownFields()
	for decoder.More() {
		var l line
		if err := decoder.Decode(&l); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, l.Step)
		if l.Attempt != 7 || l.Steps != 24 || l.LR != 0.1 || l.Loss <= 0 || l.Epoch != int(l.Step-1)/12 {
			t.Errorf("%+v", l)
		}
		// The clock is read twice in a step, so a step takes one second. The communication, measured by a real clock, takes far less.
		if l.CommShare < 0 || l.CommShare > 0.5 || l.Overlap < 0 || l.Overlap > 1 || l.SamplesPerS < 1 || l.SamplesPerS > 8 {
			t.Errorf("share %v, overlap %v and rate %v, want at most 8 rows a second", l.CommShare, l.Overlap, l.SamplesPerS)
		}
		// A step takes one second of the clock.
		if want := float64(24 - l.Step); l.LeftS != want {
			t.Errorf("%v s left after step %d, want %v", l.LeftS, l.Step, want)
		}
		if last := l.Step%12 == 0; (l.EvalLoss != nil) != last || l.Accuracy != nil {
			t.Errorf("evaluation in the line of step %d: %v, %v", l.Step, l.EvalLoss, l.Accuracy)
		}
		if l.Time.Year() != 2024 || l.Time.Location() != time.UTC {
			t.Errorf("time %v", l.Time)
		}
	}
	// There are lines every ten steps and at the ends of epochs.
	if !slices.Equal(steps, []int64{10, 12, 20, 24}) {
		t.Errorf("lines of steps %v, want 10, 12, 20 and 24", steps)
	}
}

func TestMetricsThatCannotBeWrittenDoNotStopTraining(t *testing.T) {
	mustTrain(t, 1, small(1, 2, 5), func(_ int, _ *Config, env *Env) { env.Metrics = full{} })
}

// A line that was cut short, for example by a full disk, does not make the next line invalid.
func TestMetricsSurviveAShortWrite(t *testing.T) {
	w := new(short)
	mustTrain(t, 1, small(1, 3, 5), func(_ int, _ *Config, env *Env) { env.Metrics = w })
	lines := strings.Split(strings.TrimSuffix(w.String(), "\n"), "\n")
	if len(lines) != 3 || json.Valid([]byte(lines[0])) || !json.Valid([]byte(lines[1])) || !json.Valid([]byte(lines[2])) {
		t.Errorf("wrote %q, want half a line and two whole ones", lines)
	}
}

// short is a disk that takes only half of the first write, and then all of every later one.
type short struct{ bytes.Buffer }

func (s *short) Write(b []byte) (int, error) {
	if s.Len() == 0 {
		n, _ := s.Buffer.Write(b[:len(b)/2])
		return n, errors.New("disk full")
	}
	return s.Buffer.Write(b)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestOnlyRankZeroShowsProgress(t *testing.T) {
	var got []stepDone
	mustTrain(t, 2, small(2, 2, 5), func(rank int, _ *Config, env *Env) {
		env.onStep = func(p stepDone) {
			if rank != 0 {
				t.Error("another rank than 0 shows its progress")
			}
			got = append(got, p)
		}
	})
	if len(got) != 10 || got[6].step != 7 || got[6].steps != 10 || got[6].epoch != 1 || got[6].loss <= 0 {
		t.Errorf("%+v", got)
	}
}

func TestCheckpointsAreOnePerStep(t *testing.T) {
	for every, want := range map[int][]int64{0: {10}, 3: {3, 6, 9, 10}, 5: {5, 10}, 100: {10}} {
		c := newCheckpoints()
		r := mustTrain(t, 2, small(2, 2, 5),
			func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.EverySteps = c.open(t), c.fs, every })
		if got := c.steps(t); !slices.Equal(got, want) {
			t.Errorf("every %d steps: checkpoints of steps %v, want %v", every, got, want)
		}
		if path := r[1].Checkpoint; filepath.Base(path) != "step-000000000010" {
			t.Errorf("rank 1 got %q", path)
		}
	}
	if r := mustTrain(t, 2, small(2, 2, 5), nil); r[0].Checkpoint != "" {
		t.Errorf("%+v without a folder", r[0].Result)
	}
}

// A save that fails ends the run on every rank with the same error.
func TestFailedSaveEndsEveryRank(t *testing.T) {
	mem := vfstest.NewMem()
	var superseded atomic.Bool // set once the fenced run has taken a step
	for name, test := range map[string]struct {
		options checkpoint.Options
		class   error
	}{
		"fenced": {checkpoint.Options{FS: vfstest.NewMem(), Fence: func() error {
			if superseded.Load() {
				return errors.New("attempt 2 has begun")
			}
			return nil
		}}, checkpoint.ErrFenced},
		"full": {checkpoint.Options{FS: vfstest.NewInjector(mem, func(_ int, op vfstest.Op) vfstest.Fault {
			if op.Kind == "write" && strings.Contains(op.Path, stepName(2)) {
				return vfstest.Fault{Err: syscall.EDQUOT}
			}
			return vfstest.Fault{}
		})}, checkpoint.ErrNoSpace},
	} {
		t.Run(name, func(t *testing.T) {
			options := test.options
			options.Run, options.Attempt = "test", 1
			dir, err := checkpoint.Open("checkpoints", options)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range train(t, 3, small(1, 2, 5), func(rank int, cfg *Config, env *Env) {
				env.EverySteps, env.FS = 2, options.FS
				if name == "full" {
					env.FS = mem // only rank 0's folder is full
				}
				if rank == 0 {
					env.Checkpoints = dir
					env.onStep = func(stepDone) { superseded.Store(name == "fenced") }
				}
			}) {
				if !errors.Is(r.err, test.class) || !strings.Contains(r.err.Error(), "save step 2: ") {
					t.Errorf("rank %d: error %v, want %v", i, r.err, test.class)
				}
				if errors.Is(r.err, ErrElsewhere) != (i > 0) {
					t.Errorf("rank %d: error %v; only rank 0 is at fault", i, r.err)
				}
			}
		})
	}
}

func TestDivergenceNamesStepAndCheckpoint(t *testing.T) {
	for _, size := range []int{1, 2} {
		c := newCheckpoints()
		cfg := small(size, 20, 5)
		cfg.Model.Kind, cfg.Optimizer.LR = "dense", 3e3
		for i, r := range train(t, size, cfg, func(_ int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.EverySteps = c.open(t), c.fs, 2
		}) {
			if !errors.Is(r.err, ErrDiverged) ||
				!regexp.MustCompile(`at step \d+ \(epoch \d+\): the loss is .*newest checkpoint is of step \d+`).MatchString(
					r.err.Error()) {
				t.Errorf("rank %d: error %v, want one that names the step and what is left", i, r.err)
			}
		}
		// The checkpoint that is left is good: every number is finite, and a run can resume from it.
		cfg.Optimizer.LR, cfg.Epochs = 1e-6, 1
		mustTrain(t, size, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS, env.Resume = c.open(t), c.fs, true })
	}
}

// Parameters that are not finite are not saved, even if every loss so far was finite.
func TestNothingBadIsSaved(t *testing.T) {
	c := newCheckpoints()
	cfg := small(2, 1, 1)
	// The run takes one step, whose gradient times the learning rate overflows float32.
	cfg.Model.Kind, cfg.Optimizer.LR, cfg.Data.Noise = "dense", 3e38, 1000
	cfg.Data.Eval = ""
	for i, r := range train(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = c.open(t), c.fs }) {
		if !errors.Is(r.err, ErrDiverged) || !strings.Contains(r.err.Error(), "model.0.") {
			t.Errorf("rank %d: error %v, want one that names the parameter", i, r.err)
		}
	}
	if got := c.steps(t); len(got) != 0 {
		t.Errorf("checkpoints of steps %v", got)
	}
}

// Bad input on one rank ends all ranks with an error. No rank waits for the one that has ended.
func TestBadInputEndsAllRanks(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b ...byte) string {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	images := write("images", 0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 50, 60, 70)
	labels := write("labels", 0, 0, 8, 1, 0, 0, 0, 3, 3, 4, 5)
	badLabels := write("bad", 0, 0, 8, 1, 0, 0, 0, 3, 3, 77, 5)
	digits := func(c *Config) {
		c.Loss, c.Data.Kind, c.Data.Train, c.Data.Eval = "cross_entropy", "mnist", "", ""
		c.Data.Images, c.Data.Labels = images, labels
	}
	for name, test := range map[string]struct {
		change func(rank int, c *Config)
		want   string // on every rank
	}{
		"missing file": {func(_ int, c *Config) { digits(c); c.Data.Images = "nowhere.gz" },
			filepath.Join(dir, "nowhere.gz") + ": no such file or directory (data.images and data.labels name the files"},
		"missing file on one rank": {func(rank int, c *Config) {
			if digits(c); rank == 1 {
				c.Data.Labels = "nowhere"
			}
		}, "nowhere: no such file"},
		"label out of range":    {func(_ int, c *Config) { digits(c); c.Data.Labels = badLabels }, "label 77 of row 1 is out of range"},
		"fewer rows than ranks": {func(_ int, c *Config) { digits(c); c.Data.Train = "1:3" }, "2 rows to train on are too few for 3 ranks"},
		"range beyond the data": {func(_ int, c *Config) { c.Data.Train = "0:9999" },
			"data.train: range 0:9999 goes beyond the data, which has 42 rows"},
		"eval beyond the data": {func(_ int, c *Config) { c.Data.Eval = "5:43" }, "data.eval: range 5:43 goes beyond"},
		"nonsense":             {func(_ int, c *Config) { c.Epochs = 0 }, "epochs is 0: must be 1 to"},
		"nonsense on one rank": {func(rank int, c *Config) {
			if rank == 2 {
				c.BatchSize = -1
			}
		}, "batch_size is -1"},
		"another learning rate": {func(rank int, c *Config) {
			if rank == 1 {
				c.Optimizer.LR = 0.2
			}
		}, "rank 1 and rank 0 differ in their training settings or data: optimizer.lr is 0.1 on rank 0 and 0.2 here"},
		"too large a model": {func(_ int, c *Config) { c.Model.Hidden = []int{1 << 20, 1 << 20} }, "more than 2147483648 parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			for i, r := range train(t, 3, small(2, 1, 5), func(rank int, c *Config, env *Env) {
				env.WorkDir = dir
				test.change(rank, c)
			}) {
				if r.err == nil || !strings.Contains(r.err.Error(), test.want) {
					t.Errorf("rank %d: error %v, want %q", i, r.err, test.want)
				}
			}
		})
	}
}

// digits writes three images of one pixel with their labels into a new folder, and returns a job for them.
func digits(t *testing.T, labels ...byte) (dir string, cfg Config) {
	t.Helper()
	dir = t.TempDir()
	for name, b := range map[string][]byte{
		"images": {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 50, 60, 70},
		"labels": append([]byte{0, 0, 8, 1, 0, 0, 0, 3}, labels...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg = small(1, 1, 1)
	cfg.Loss, cfg.Data = "cross_entropy",
		DataConfig{Kind: "mnist", Images: "images", Labels: "labels", Train: "0:2", Eval: "2:3", Remainder: "pad"}
	return dir, cfg
}

// Ranks whose data differs get an error. A node may hold an old copy of the data.
func TestRanksMustHaveTheSameData(t *testing.T) {
	here, cfg := digits(t, 3, 4, 5)
	for name, labels := range map[string][]byte{"to train on": {3, 9, 5}, "to evaluate": {3, 4, 9}} {
		t.Run(name, func(t *testing.T) {
			there, _ := digits(t, labels...)
			for i, r := range train(t, 2, cfg, func(rank int, _ *Config, env *Env) {
				env.WorkDir = []string{here, there}[rank]
			}) {
				if r.err == nil || !strings.Contains(r.err.Error(), "rank 1 and rank 0 differ in their training settings or data") {
					t.Errorf("rank %d: error %v, want one about the data", i, r.err)
				}
			}
		})
	}
}

func TestRunNeedsACommunicator(t *testing.T) {
	if _, err := Run(t.Context(), small(1, 1, 1), Env{}); err == nil {
		t.Error("no error")
	}
}

// Two runs of the same config end with the same bytes.
func TestRunsGiveTheSameStateAgain(t *testing.T) {
	a, b := newCheckpoints(), newCheckpoints()
	for _, c := range []checkpoints{a, b} {
		mustTrain(t, 3, small(2, 2, 5), func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = c.open(t), c.fs })
	}
	sameState(t, a.latest(t), b.latest(t))
}

// N ranks with batches of B rows take the steps of one rank with batches of N times B rows, up to rounding.
func TestRanksShareABatch(t *testing.T) {
	cfg := small(1, 2, 5)
	cfg.Data.Shuffle, cfg.Data.Train = false, "0:40" // so that the batches have equal rows
	one := mustTrain(t, 1, cfg, nil)[0]
	cfg.BatchSize /= 2
	if two := mustTrain(t, 2, cfg, nil)[0]; two.Loss-one.Loss > 1e-6 || one.Loss-two.Loss > 1e-6 {
		t.Errorf("two ranks end with a loss of %v, one with %v", two.Loss, one.Loss)
	}
}

func TestSelfIsAWorldOfOne(t *testing.T) {
	r, err := Run(t.Context(), small(1, 1, 5), Env{Comm: mpi.Self()})
	if err != nil || r.Steps != 5 {
		t.Errorf("%+v, error %v", r, err)
	}
}
