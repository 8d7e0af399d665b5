package trainer

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
)

// A rank whose outputs overflow looks for the layer by itself. The other rank is then in the middle of a step that sums statistics of batch
// normalization over ranks, but neither waits for the other.
func TestOneRankDivergesWithoutWaitingForOthers(t *testing.T) {
	dir, cfg := imageJob(t)
	cfg.DDP.SyncBatchNorm = true
	wait := mpi.DefaultConfig()
	wait.Timeout = patience // a rank that waited in vain would wait as long as this
	comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(2), mpi.InitConfig{Config: wait})
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range testkit.Each(2, func(rank int) error {
		defer comms[rank].Close()
		tr := newTrainer(cfg, Env{Comm: comms[rank], WorkDir: dir})
		defer tr.close()
		if err := tr.setUp(t.Context()); err != nil {
			return err
		}
		if rank == 1 {
			for _, head := range tr.params[len(tr.params)-2:] { // statistics do not depend on the last layer's parameters
				for j := range head.Value {
					head.Value[j] = 3e38
				}
			}
		}
		_, err := tr.run(t.Context())
		return err
	}) {
		want := "training diverged at step 1 (epoch 0): the loss is NaN, as layer"
		if !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v, want ErrDiverged with %q", i, err, want)
		}
		if errors.Is(err, ErrElsewhere) != (i == 0) {
			t.Errorf("rank %d: %v, and rank 1 is to blame", i, err)
		}
	}
}

// wantErrors checks that every rank has an error that holds all words.
func wantErrors(t *testing.T, world []*rank, words ...string) {
	t.Helper()
	for i, r := range world {
		if r.err == nil {
			t.Errorf("rank %d: no error", i)
			continue
		}
		for _, word := range words {
			if !strings.Contains(r.err.Error(), word) {
				t.Errorf("rank %d: error %q, want %q in it", i, r.err, word)
			}
		}
	}
}

// Files that are wrong, or that do not fit together, end every rank with an error that says what to do.
func TestBadFilesEndEveryRank(t *testing.T) {
	dir := t.TempDir()
	writeNPY(t, dir, "x.npy", []int{12, 4}, normals(1, 12*4))
	writeNPY(t, dir, "short.npy", []int{11, 4}, normals(1, 11*4))
	writeNPY(t, dir, "y.npy", []int{12, 2}, normals(2, 12*2))
	writeNPY(t, dir, "classes.npy", []int{12}, classesOf(3, 12, 3))
	writeNPY(t, dir, "negative.npy", []int{12}, append(classesOf(3, 11, 3), -1))
	writeNPY(t, dir, "infinite.npy", []int{12, 4}, append(normals(1, 12*4-1), float32(math.Inf(1))))
	writeNPY(t, dir, "images.npy", []int{12, 1, 3, 7}, normals(3, 12*21))
	for name, text := range map[string]string{"text": "0123456789", "empty": "", "library.so": "no library"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	weights := func(name string, tensors ...checkpoint.Tensor) {
		if err := safetensors.Write(filepath.Join(dir, name), tensors, nil); err != nil {
			t.Fatal(err)
		}
	}
	weight, bias := checkpoint.Float32Tensor("0.weight", []int{2, 4}, normals(4, 8)),
		checkpoint.Float32Tensor("0.bias", []int{2}, normals(5, 2))
	weights("less", weight)
	weights("more", weight, bias, checkpoint.Float32Tensor("1.weight", []int{1}, normals(6, 1)))
	weights("inner", checkpoint.Float32Tensor("net.0.weight", []int{2, 4}, normals(4, 8)),
		checkpoint.Float32Tensor("net.0.bias", []int{2}, normals(5, 2)))
	weights("twice", weight, bias, checkpoint.Float32Tensor("module.0.weight", []int{2, 4}, normals(7, 8)))
	weights("other", weight, checkpoint.Float32Tensor("0.bias", []int{2, 1}, normals(5, 2)))
	weights("turned", checkpoint.Float32Tensor("0.weight", []int{4, 2}, normals(4, 8)), bias)

	classes := func(c *Config) { c.Loss, c.Data.TargetFile = "cross_entropy", "classes.npy" }
	text := func(c *Config, path string) {
		c.Loss, c.Data.Kind, c.Data.Path, c.Model = "cross_entropy", "text", path, DefaultConfig().Model
		c.Model.Kind, c.Model.Context = "gpt", 10
	}
	for name, test := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"init is missing":         {func(c *Config) { c.Init = "nowhere" }, []string{"init: ", "nowhere", "no such file"}},
		"init is not safetensors": {func(c *Config) { c.Init = "text" }, []string{"init: ", filepath.Join(dir, "text")}},
		"init lacks a parameter":  {func(c *Config) { c.Init = "less" }, []string{"init: ", "less", "the file has no 0.bias"}},
		"init has one more":       {func(c *Config) { c.Init = "more" }, []string{"init: ", "more", "the model has no 1.weight"}},
		"init has a prefix": {func(c *Config) { c.Init = "inner" },
			[]string{"init: ", "inner: the file has net.0.bias and 1 more, which the model does not have, and lacks 0.weight and 1 more"}},
		"init has another shape": {func(c *Config) { c.Init = "other" },
			[]string{"init: ", "0.bias is [2 1] in the file and [2] in the model"}},
		"init has a name twice": {func(c *Config) { c.Init = "twice" }, []string{"init: ", "twice", "the file has 0.weight twice"}},
		"init is turned": {func(c *Config) { c.Init = "turned" },
			[]string{"init: ", "0.weight is [4 2] in the file and [2 4] in the model"}},
		"BLAS is missing": {func(c *Config) { c.BLAS = "./nowhere.so" }, []string{"blas: ", filepath.Join(dir, "nowhere.so")}},
		"BLAS is not a library": {func(c *Config) { c.BLAS = "./library.so" },
			[]string{"blas: ", filepath.Join(dir, "library.so"), `"go"`}},
		"fewer targets": {func(c *Config) { c.Data.InputFile = "short.npy" },
			[]string{"short.npy has 11 rows and", "data.inputs and data.targets"}},
		"an infinite input": {func(c *Config) { c.Data.InputFile = "infinite.npy" },
			[]string{"infinite.npy: +Inf in row 11, column 3"}},
		"a negative label": {func(c *Config) { classes(c); c.Data.TargetFile = "negative.npy" },
			[]string{"negative.npy: label -1 of row 11 is out of range"}},
		"classes without a loss": {func(c *Config) { c.Data.TargetFile = "classes.npy" },
			[]string{`loss is "mse", but the targets of the data need "cross_entropy"`}},
		"numbers without a loss": {func(c *Config) { c.Loss = "cross_entropy" },
			[]string{`loss is "cross_entropy", but the targets of the data need "mse"`}},
		"a text is too short": {func(c *Config) { text(c, "text") }, []string{"10 bytes, but a row of context 10 takes 11", "data.path"}},
		"a text is empty":     {func(c *Config) { text(c, "empty") }, []string{"read text: ", "empty"}},
		"fewer texts than ranks": {func(c *Config) { text(c, "text"); c.Model.Context = 4 },
			[]string{"2 rows to train on are too few for 4 ranks"}},
		"images are too small": {func(c *Config) { classes(c); c.Data.InputFile, c.Model.Kind = "images.npy", "cnn" },
			[]string{"stage 2 halves an image of 1 x 3", "use fewer stages, or larger images"}},
		"rows are not images": {func(c *Config) { classes(c); c.Model.Kind = "cnn" },
			[]string{`model.kind is "cnn", but the rows are not images`}},
		"a pipeline is too long": {func(c *Config) { c.Pipeline = 4 },
			[]string{"pipeline is 4, but the model has only 1 layers to split"}},
		"a pipeline is left over": {func(c *Config) { c.Pipeline = 3 }, []string{"4 ranks do not divide into pipelines of 3", "pipeline"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Epochs, cfg.BatchSize, cfg.Loss, cfg.Model.Kind = 1, 2, "mse", "dense"
			cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile = "npy", "x.npy", "y.npy"
			test.change(&cfg)
			wantErrors(t, trainOver(t, "local", 4, cfg, func(_ int, _ *Config, env *Env) { env.WorkDir = dir }), test.want...)
		})
	}
}

// A bad file on one rank ends all ranks with its error.
func TestABadFileOfOneRankEndsAll(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weights"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := deepJob()
	good := filepath.Join(t.TempDir(), "weights")
	writeInit(t, cfg, generatedSpec(cfg), good)
	cfg.Init = "weights"
	world := trainOver(t, "local", 3, cfg, func(rank int, _ *Config, env *Env) {
		if env.WorkDir = filepath.Dir(good); rank == 2 {
			env.WorkDir = dir
		}
	})
	wantErrors(t, world, "init: "+filepath.Join(dir, "weights"))
	for i, r := range world {
		if errors.Is(r.err, ErrElsewhere) != (i < 2) {
			t.Errorf("rank %d: %v, and only rank 2 is to blame", i, r.err)
		}
	}
}

// A row whose outputs overflow ends training on all ranks. The error names the step and the layer, and the checkpoint of the step before
// stays as it was.
func TestTheLayerThatOverflowsIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		world  int
		change func(*Config)
	}{
		"alone":                       {1, func(c *Config) { c.BatchSize = 8 }},
		"one of 2 ranks":              {2, func(c *Config) { c.BatchSize = 4 }},
		"no overlap":                  {2, func(c *Config) { c.BatchSize, c.DDP.Overlap, c.DDP.BucketMB = 4, false, 0.0001 }},
		"in the second of 2 passes":   {2, func(c *Config) { c.BatchSize, c.Accumulate = 2, 2 }},
		"in a pipeline":               {2, func(c *Config) { c.BatchSize, c.Pipeline = 8, 2 }},
		"in one of 2 pipelines":       {4, func(c *Config) { c.BatchSize, c.Pipeline = 4, 2 }},
		"in a replica":                {1, func(c *Config) { c.Mode, c.Replicas, c.BatchSize = "dp", 3, 8 }},
		"sent as int8":                {2, func(c *Config) { c.BatchSize, c.DDP.Compress = 4, "int8" }},
		"with the state split":        {3, func(c *Config) { c.BatchSize, c.Optimizer.Zero, c.Data.Train = 3, true, "2:48" }},
		"with products of few digits": {2, func(c *Config) { c.BatchSize, c.Precision = 4, "bfloat16" }},
	} {
		t.Run(name, func(t *testing.T) { overflow(t, test.world, test.change) })
	}
}

// overflow trains on rows in steps of 8. One row of the third step is so large that its outputs overflow.
func overflow(t *testing.T, world int, change func(*Config)) {
	t.Helper()
	dir := t.TempDir()
	const rows, bad = 48, 21 // row 5 of its step, which belongs to rank 1 of 2
	x := normals(1, rows*5)
	for i := range 5 {
		x[bad*5+i] = 3e38
	}
	writeNPY(t, dir, "x.npy", []int{rows, 5}, x)
	writeNPY(t, dir, "y.npy", []int{rows, 3}, normals(2, rows*3))
	cfg := deepJob()
	cfg.Model.Activation, cfg.Data.Shuffle, cfg.Optimizer.LR, cfg.Init = "relu", false, 1e-9, "init"
	cfg.Data.Kind, cfg.Data.InputFile, cfg.Data.TargetFile = "npy", "x.npy", "y.npy"
	change(&cfg)
	// With weights of 1 the first layer adds up 5 numbers of 3e38. The steps before hardly change the weights.
	writeInit(t, cfg, generatedSpec(cfg), filepath.Join(dir, "init"))
	ones(t, filepath.Join(dir, "init"))

	c := newCheckpoints()
	ranks := trainOver(t, "local", world, cfg, func(_ int, _ *Config, env *Env) {
		env.WorkDir, env.Checkpoints, env.FS, env.EverySteps = dir, c.open(t), c.fs, 1
	})
	wantErrors(t, ranks, "training diverged at step 3 (epoch 0)", "layer 0 gives numbers that are not finite", "checkpoint is of step 2")
	for i, r := range ranks {
		if !errors.Is(r.err, ErrDiverged) {
			t.Errorf("rank %d: error %v is not ErrDiverged", i, r.err)
		}
	}
	if got := c.steps(t); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("checkpoints of steps %v, want 1 and 2", got)
	}
	state := c.latest(t)
	for _, tensor := range state.Tensors {
		v := floatsOf(t, state, tensor.Name)
		if d := distance(v, v); d != 0 {
			t.Errorf("%s is not finite", tensor.Name)
		}
	}
}

// A learning rate that makes parameters overflow ends training no later than the next loss.
func TestTheParameterThatOverflowsIsNamed(t *testing.T) {
	for _, world := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			dir, cfg := textJob(t)
			cfg.Optimizer.LR = 3e38
			wantErrors(t, trainOver(t, "local", world, cfg, func(_ int, _ *Config, env *Env) { env.WorkDir = dir }),
				"training diverged at step", "not finite", "there is no checkpoint")
		})
	}
}

// The layer is named, too, if a pass before the step's last one overflows.
func TestTheLayerThatOverflowsInTheFirstPassIsNamed(t *testing.T) {
	overflow(t, 2, func(c *Config) { c.BatchSize, c.Accumulate, c.Data.Train = 2, 2, "4:48" })
}

// A pipeline refuses a file with tensors that the model does not have, although no stage has the whole model.
func TestPipelineRefusesAFileOfAnotherModel(t *testing.T) {
	for name, tensor := range map[string]checkpoint.Tensor{
		"the model has no 99.weight":  checkpoint.Float32Tensor("99.weight", []int{2}, []float32{1, 2}),
		"the file has 0.weight twice": checkpoint.Float32Tensor("module.0.weight", []int{9, 5}, normals(1, 45)),
	} {
		for _, stages := range []int{1, 2, 3} {
			dir, cfg := t.TempDir(), deepJob()
			path := filepath.Join(dir, "init")
			writeInit(t, cfg, generatedSpec(cfg), path)
			tensors, _, err := safetensors.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Init, cfg.Pipeline = "init", stages
			inDir := func(_ int, _ *Config, env *Env) { env.WorkDir = dir }
			complete(t, "local", stages, cfg, inDir)
			if err := safetensors.Write(path, append(tensors, tensor), nil); err != nil {
				t.Fatal(err)
			}
			wantErrors(t, trainOver(t, "local", stages, cfg, inDir), "init: ", path, name)
		}
	}
}
