package trainer

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestDefaultsNeedOnlyData(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.Validate(); err == nil ||
		err.Error() != `data.kind is "": must be "mnist", "cifar10", "csv", "npy", "text" or "generated"` {
		t.Errorf("error %v, want one about data.kind alone", err)
	}
	cfg.Data.Kind, cfg.Data.Images, cfg.Data.Labels = "mnist", "x", "y"
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"epochs is 0: must be 1 to 1000000000":                        func(c *Config) { c.Epochs = 0 },
		"batch_size is -3: must be":                                   func(c *Config) { c.BatchSize = -3 },
		`loss is "l1": must be`:                                       func(c *Config) { c.Loss = "l1" },
		`loss is "cross_entropy": must be "mse" for data.kind = "gen`: func(c *Config) { c.Loss = "cross_entropy" },
		`model.kind is "rnn": must be "mlp", "dense", "cnn" or "gpt"`: func(c *Config) { c.Model.Kind = "rnn" },
		`model.kind is "gpt": needs data.kind = "text"`:               func(c *Config) { c.Model.Kind = "gpt" },
		`data.kind is "text": needs model.kind = "gpt"`:               func(c *Config) { c.Data.Kind, c.Loss = "text", "cross_entropy" },
		"model.width is 130: must be a multiple of model.heads, 4":    func(c *Config) { c.Model.Kind, c.Model.Width = "gpt", 130 },
		"model.kernel is 4: must be an odd number":                    func(c *Config) { c.Model.Kind, c.Model.Kernel = "cnn", 4 },
		"model.channels[1] is 0: must be": func(c *Config) {
			c.Model.Kind,
				c.Model.Channels = "cnn", []int{1, 0}
		},
		"model.dropout is 1: must be":                        func(c *Config) { c.Model.Dropout = 1 },
		`mode is "fsdp": must be "ddp" or "dp"`:              func(c *Config) { c.Mode = "fsdp" },
		`mode is "dp": must be "ddp" if pipeline is above 1`: func(c *Config) { c.Mode, c.Pipeline = "dp", 2 },
		`replicas is 2: belongs to mode = "dp"`:              func(c *Config) { c.Replicas = 2 },
		`precision is "fp8": must be`:                        func(c *Config) { c.Precision = "fp8" },
		"accumulate is 0: must be":                           func(c *Config) { c.Accumulate = 0 },
		`blas is "": must be`:                                func(c *Config) { c.BLAS = "" },
		"clip_norm is -1: must be":                           func(c *Config) { c.ClipNorm = -1 },
		`data.remainder is "some": must be`:                  func(c *Config) { c.Data.Remainder = "some" },
		"data.path is \"\": must name a CSV file":            func(c *Config) { c.Data.Kind = "csv" },
		`data.delimiter is "": must name one character`: func(c *Config) {
			c.Data.Kind, c.Data.Path,
				c.Data.Delimiter = "csv", "x", ""
		},
		"data.files is []: must name": func(c *Config) {
			c.Data.Kind,
				c.Loss = "cifar10", "cross_entropy"
		},
		`data.files[0] is "": must name`: func(c *Config) {
			images(c)
			c.Data.Kind,
				c.Data.Files = "cifar10", []string{""}
		},
		`want "sgd", "adam", "adamw" or "lamb"`:                      func(c *Config) { c.Optimizer.Kind = "rms" },
		`want "constant", "step", "cosine", "one_cycle" or "linear"`: func(c *Config) { c.Schedule.Kind = "poly" },
		"optimizer.betas: are 0.9 and 1, want": func(c *Config) {
			c.Optimizer.Kind,
				c.Optimizer.Betas[1] = "adam", 1
		},
		"optimizer.nesterov: needs a momentum": func(c *Config) {
			c.Optimizer.Nesterov,
				c.Optimizer.Momentum = true, 0
		},
		"optimizer.zero is true: must be false":                        func(c *Config) { c.Optimizer.Zero, c.DDP.AverageEvery = true, 2 },
		`schedule.kind: "poly" is not a schedule`:                      func(c *Config) { c.Schedule.Kind = "poly" },
		"schedule.warmup_steps is 2147483648: must be 0 to 2147483647": func(c *Config) { c.Schedule.WarmupSteps = 1 << 31 },
		"schedule.step_size is 2147483648: must be 1 to 2147483647": func(c *Config) {
			c.Schedule.Kind,
				c.Schedule.StepSize = "step", 1<<31
		},
		"schedule.min_lr: is 1, want":                                func(c *Config) { c.Schedule.Kind, c.Schedule.MinLR = "cosine", 1 },
		`ddp.compress is "zip": must be`:                             func(c *Config) { c.DDP.Compress = "zip" },
		"ddp.bucket_mb is 0: must be":                                func(c *Config) { c.DDP.BucketMB = 0 },
		`evaluate.best is "accuracy": must be "loss" for regression`: func(c *Config) { c.Evaluate.Best = "accuracy" },
		"ddp.sync_batch_norm is true: must be false":                 func(c *Config) { c.DDP.SyncBatchNorm, c.Mode = true, "dp" },
		"schedule.gamma is 0: must be a number above 0, up to 1":     func(c *Config) { c.Schedule.Kind, c.Schedule.Gamma = "step", 0 },
		"model.context is 65537: must be":                            func(c *Config) { c.Model.Kind, c.Model.Context = "gpt", 65537 },
		`ddp.compress is "int8": cannot be used with`:                func(c *Config) { c.DDP.Compress, c.Precision = "int8", "float16" },
		`evaluate.patience is 1: needs evaluate.best`:                func(c *Config) { c.Evaluate.Patience = 1 },
		`model.activation is "gelu": must be "relu" or "tanh"`:       func(c *Config) { c.Model.Activation = "gelu" },
		"model.hidden[1] is 0: must be":                              func(c *Config) { c.Model.Hidden = []int{1, 0} },
		"model.hidden is 1001: must have at most 1000 layers":        func(c *Config) { c.Model.Hidden = make([]int, 1001) },
		`data.kind is "xml": must be`:                                func(c *Config) { c.Data.Kind = "xml" },
		"data.rows is 0: must be":                                    func(c *Config) { c.Data.Rows = 0 },
		"data.inputs is -1: must be":                                 func(c *Config) { c.Data.Inputs = -1 },
		"data.outputs is 0: must be":                                 func(c *Config) { c.Data.Outputs = 0 },
		"data.noise is NaN: must be":                                 func(c *Config) { c.Data.Noise = math.NaN() },
		`data.train: range "1:x"`:                                    func(c *Config) { c.Data.Train = "1:x" },
		`data.eval: range "9:9" is empty`:                            func(c *Config) { c.Data.Eval = "9:9" },
		`data.images is "": must name an IDX file`:                   func(c *Config) { c.Data.Kind, c.Loss = "mnist", "cross_entropy" },
		`optimizer.kind: "rms" is not an optimizer`:                  func(c *Config) { c.Optimizer.Kind = "rms" },
		"optimizer.lr: is +Inf, want":                                func(c *Config) { c.Optimizer.LR = math.Inf(1) },
		// This is 0 in float32.
		"optimizer.lr: is 1e-50, want": func(c *Config) { c.Optimizer.LR = 1e-50 },
		// This is 1 in float32.
		"optimizer.momentum: is 0.999999999999, want":           func(c *Config) { c.Optimizer.Momentum = 0.999999999999 },
		"optimizer.momentum: is 1, want at least 0 and below 1": func(c *Config) { c.Optimizer.Momentum = 1 },
		"evaluate.every_epochs is -1: must be":                  func(c *Config) { c.Evaluate.EveryEpochs = -1 },
		`data.eval is "5:10": needs data.train, too`:            func(c *Config) { c.Data.Train = "" },
		"micro_batches is 9: must be at most batch_size, 8":     func(c *Config) { c.Pipeline, c.MicroBatches = 2, 9 },
		// A job would refuse these at its start:
		"optimizer.eps: is 0, want a number above 0": func(c *Config) { c.Optimizer.Kind, c.Optimizer.Eps = "adam", 0 },
		"optimizer.eps: is 1e-50, want": func(c *Config) {
			c.Optimizer.Kind,
				c.Optimizer.Eps = "lamb", 1e-50
		},
		"optimizer.dampening: is 0.5 without a momentum": func(c *Config) {
			c.Optimizer.Momentum,
				c.Optimizer.Dampening = 0, 0.5
		},
		"schedule.min_lr: only the cosine and linear schedules": func(c *Config) { c.Schedule.MinLR = 0.01 },
		"schedule.warmup_steps: 9 leave none of the run's 9 steps": func(c *Config) {
			c.Schedule.Kind, c.Schedule.WarmupSteps,
				c.MaxSteps = "linear", 9, 9
		},
		`data.header: is "maybe", want "auto", "yes" or "no"`: func(c *Config) { c.Data = csvOf("a"); c.Data.Header = "maybe" },
		`data.delimiter: is "::", want one byte`: func(c *Config) {
			c.Data.Kind, c.Data.Path,
				c.Data.Delimiter = "csv", "x", "::"
		},
		`data.delimiter: is "→", want one byte`: func(c *Config) {
			c.Data.Kind, c.Data.Path,
				c.Data.Delimiter = "csv", "x", "→"
		},
		`data.delimiter: is "-", want one byte`: func(c *Config) {
			c.Data.Kind, c.Data.Path,
				c.Data.Delimiter = "csv", "x", "-"
		},
		`data.delimiter: is "e", want one byte`: func(c *Config) {
			c.Data.Kind, c.Data.Path,
				c.Data.Delimiter = "csv", "x", "e"
		},
		`data.target: names 2 columns, but classes must be in one`: func(c *Config) {
			c.Data = csvOf("a", "b")
			c.Loss = "cross_entropy"
		},
		`data.target: names "a" twice`: func(c *Config) { c.Data = csvOf("a", "a") },
		"ddp.start_step is 16777217: must be 0 to 16777216": func(c *Config) {
			c.DDP.Compress,
				c.DDP.StartStep = "powersgd", 1<<24+1
		},
		"data.rows: 134217728 rows of 2 inputs and 1 outputs are mor": func(c *Config) {
			c.Data.Rows, c.Data.Inputs,
				c.Data.Outputs = 1<<27, 2, 1
		},
		"data.inputs: 1048576 inputs x 1048576 outputs are more than": func(c *Config) { c.Data.Inputs, c.Data.Outputs = 1<<20, 1<<20 },
		`data.eval: range 0:4097 goes beyond the data, which`:         func(c *Config) { c.Data.Rows, c.Data.Eval = 4096, "0:4097" },
		`model.kind is "cnn": needs images: data.kind = "generated"`:  func(c *Config) { c.Model.Kind = "cnn" },
		// These values may be secret, or long:
		`mode is "` + strings.Repeat("x", 60) + `"...: must be`: func(c *Config) { c.Mode = strings.Repeat("x", 1000) },
		`mode is "API_TOKEN=***": must be`:                      func(c *Config) { c.Mode = "API_TOKEN=abc" },
		`data.train: range "API_TOKEN=***": write it as`:        func(c *Config) { c.Data.Train = "API_TOKEN=abc" },
		`data.eval: range "API_TOKEN=***": "API_TOKEN=***" is`:  func(c *Config) { c.Data.Eval = "API_TOKEN=abc:2" },
		`data.eval: range "1:` + strings.Repeat("x", 58) +
			`"...: "xx`: func(c *Config) { c.Data.Eval = "1:" + strings.Repeat("x", 1000) },
		`data.eval: range "` + strings.Repeat("0", 60) +
			`"... is empty`: func(c *Config) { c.Data.Eval = strings.Repeat("0", 1000) + ":0" },
		`data.target: names "API_TOKEN=***" twice`: func(c *Config) {
			c.Data = csvOf("API_TOKEN=abc", "API_TOKEN=abc")
		},
		`data.delimiter: is "API_TOKEN=***", want`: func(c *Config) {
			c.Data = csvOf()
			c.Data.Delimiter = "API_TOKEN=a"
		},
		`schedule.kind: "API_TOKEN=***" is no`:  func(c *Config) { c.Schedule.Kind = "API_TOKEN=abc" },
		`optimizer.kind: "API_TOKEN=***" is no`: func(c *Config) { c.Optimizer.Kind = "API_TOKEN=abc" },
		`export: "out/m.pt" would be a safetensors file, but its ending is of another format; name it "out/m.safete`: func(c *Config) {
			c.Export = "out/m.pt"
		},
		`export: "m.npy" would be a safetensors file`: func(c *Config) { c.Export = "m.npy" },
		// These settings would have no effect:
		"micro_batches is 2: belongs to pipeline above 1": func(c *Config) { c.MicroBatches = 2 },
		"ddp.sync_batch_norm is true: belongs to a cnn":   func(c *Config) { c.DDP.SyncBatchNorm = true },
		"ddp.sync_batch_norm is true: belongs to a cnn with model.batch": func(c *Config) {
			c.DDP.SyncBatchNorm,
				c.Model.Kind = true, "cnn"
		},
		"ddp.average_warmup is 3: belongs to ddp.average_every": func(c *Config) { c.DDP.AverageWarmup = 3 },
		"evaluate.every_steps is 4: needs rows to evaluate on":  func(c *Config) { c.Evaluate.EverySteps, c.Data.Eval = 4, "" },
		`evaluate.best is "loss": needs rows to evaluate on`:    func(c *Config) { c.Evaluate.Best, c.Data.Eval = "loss", "" },
		`evaluate.best is "loss": needs evaluate.every_epochs or every_st`: func(c *Config) {
			c.Evaluate.Best,
				c.Evaluate.EveryEpochs = "loss", 0
		},
		"model.dropout is 0.5: needs hidden layers": func(c *Config) {
			c.Model.Dropout,
				c.Model.Hidden = 0.5, []int{}
		},
		"model.dropout is 0.25: must be 0 for one linear layer": func(c *Config) {
			c.Model.Dropout,
				c.Model.Kind = 0.25, "dense"
		},
	} {
		cfg := small(1, 1, 1)
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
	cfg := small(1, 0, 1)
	cfg.Optimizer.LR = -1
	if err := cfg.Validate(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("error %v, want both faults", err)
	}
	cfg = small(1, 1, 1)
	cfg.Optimizer.LR, cfg.Schedule.Kind, cfg.Schedule.MinLR = 0, "cosine", -1
	if err := cfg.Validate(); err == nil || !strings.HasSuffix(err.Error(), "\nschedule.min_lr is -1: must be a number from 0 on") {
		t.Errorf("error %v, want one of min_lr that names no learning rate", err)
	}
}

// Validate reports only the key that is wrong. It does not report keys whose right value depends on that key.
func TestValidateBlamesNoOtherKey(t *testing.T) {
	for _, test := range []struct {
		want   string
		change func(*Config)
	}{
		{"batch_size", func(c *Config) { c.BatchSize, c.Pipeline, c.MicroBatches = 0, 2, 2 }},
		{"pipeline", func(c *Config) { c.Pipeline, c.MicroBatches = 0, 2 }},
		{"optimizer.lr", func(c *Config) { c.Optimizer.LR, c.Schedule.Kind, c.Schedule.MinLR = -1, "cosine", 0.01 }},
		{"ddp.average_every", func(c *Config) { c.DDP.AverageEvery, c.DDP.AverageWarmup = -1, 3 }},
		{"evaluate.every_epochs", func(c *Config) { c.Evaluate.EveryEpochs, c.Evaluate.Best = -1, "loss" }},
		{"model.heads", func(c *Config) { symbols(c); c.Model.Heads = 1 << 31 }},
		{"model.width", func(c *Config) { symbols(c); c.Model.Width = -3 }},
		{"data.outputs", func(c *Config) { c.Data.Outputs = 0 }},
		{"schedule.warmup_steps", func(c *Config) { c.Schedule.Kind, c.Schedule.WarmupSteps, c.MaxSteps = "linear", -1, 9 }},
		{"schedule.step_size", func(c *Config) { c.Schedule.Kind, c.Schedule.StepSize = "step", 0 }},
		{"schedule.gamma", func(c *Config) { c.Schedule.Kind, c.Schedule.Gamma = "step", math.NaN() }},
		{"optimizer.lr", func(c *Config) { c.Optimizer.LR, c.Schedule.Kind, c.Schedule.MinLR = 1e-50, "cosine", 0.001 }},
		{"optimizer.lr", func(c *Config) { c.Optimizer.LR, c.Schedule.Kind, c.Schedule.MinLR = math.NaN(), "linear", 0.001 }},
		{"optimizer.lr", func(c *Config) { c.Optimizer.LR, c.Schedule.Kind, c.Schedule.MinLR = 1e39, "linear", 1e38 }},
		{"optimizer.momentum", func(c *Config) { c.Optimizer.Momentum, c.Optimizer.Nesterov = -1, true }},
		{"data.rows", func(c *Config) { c.Data.Rows, c.Data.Train = -1, "0:9" }},
		{"optimizer.dampening", func(c *Config) { c.Optimizer.Momentum, c.Optimizer.Dampening, c.Optimizer.Nesterov = 0.9, -1, true }},
		{"max_steps", func(c *Config) {
			c.MaxSteps, c.Schedule.Kind, c.Schedule.WarmupSteps = 2_000_000_000, "linear", 2_000_000_000
		}},
		{"micro_batches", func(c *Config) { c.Pipeline, c.MicroBatches = 2, maxBatch+1 }},
		{"micro_batches", func(c *Config) { c.MicroBatches = maxBatch + 1 }},
		{"replicas", func(c *Config) { c.Replicas = maxRanks + 1 }},
		{"ddp.average_warmup", func(c *Config) { c.DDP.AverageWarmup = maxSteps + 1 }},
		{"evaluate.every_steps", func(c *Config) { c.Evaluate.EverySteps, c.Data.Eval = maxSteps+1, "" }},
		{"evaluate.patience", func(c *Config) { c.Evaluate.Patience = maxSteps + 1 }},
		{"model.dropout", func(c *Config) { c.Model.Dropout, c.Model.Kind = 1, "dense" }},
		{"model.dropout", func(c *Config) { c.Model.Dropout, c.Model.Hidden = 1, []int{} }},
	} {
		cfg := small(1, 1, 1)
		test.change(&cfg)
		err := cfg.Validate()
		if key := strings.FieldsFunc(fmt.Sprint(err), func(r rune) bool { return r == ' ' || r == ':' })[0]; key != test.want ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one about %s alone", err, test.want)
		}
	}
}

// symbols makes c a job that trains a gpt.
func symbols(c *Config) {
	c.Model.Kind, c.Data.Kind, c.Data.Path, c.Loss = "gpt", "text", "x", "cross_entropy"
}

func csvOf(targets ...string) DataConfig {
	d := DefaultConfig().Data
	d.Kind, d.Path, d.Target = "csv", "x", targets
	return d
}

// images makes c a job that trains a cnn.
func images(c *Config) {
	c.Model.Kind, c.Loss = "cnn", "cross_entropy"
	c.Data.Kind, c.Data.Images, c.Data.Labels = "mnist", "x", "y"
}

// SyncBatchNorm is refused with replicas. Replicas of one process work at the same time and cannot share the sums over ranks.
func TestSyncBatchNormInReplicasIsRefused(t *testing.T) {
	cfg := deepJob()
	cfg.Mode, cfg.Replicas, cfg.DDP.SyncBatchNorm = "dp", 2, true
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "ddp.sync_batch_norm") {
		t.Errorf("error %v, want one about ddp.sync_batch_norm", err)
	}
}

// Settings that have an effect together are accepted, though some of them have no effect alone.
func TestSettingsThatBelongTogetherAreAccepted(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"a late start of what has none":        func(c *Config) { c.DDP.Compress, c.DDP.StartStep = "int8", 20_000_000 },
		"one row for each micro-batch":         func(c *Config) { c.Pipeline, c.MicroBatches = 2, 8 },
		"more stages than rows":                func(c *Config) { c.Pipeline = 9 },
		"statistics over ranks":                func(c *Config) { images(c); c.Model.BatchNorm, c.DDP.SyncBatchNorm = true, true },
		"a cnn with dropout, no hidden layers": func(c *Config) { images(c); c.Model.Dropout, c.Model.Hidden = 0.5, nil },
		"the hidden layer that nobody named":   func(c *Config) { c.Model.Dropout, c.Model.Hidden = 0.5, nil },
		"averages after a warm-up":             func(c *Config) { c.DDP.AverageEvery, c.DDP.AverageWarmup = 2, 3 },
		"the best of evaluations between steps": func(c *Config) {
			c.Evaluate.EveryEpochs, c.Evaluate.EverySteps,
				c.Evaluate.Best = 0, 3, "loss"
		},
		"rows to train on, and no others": func(c *Config) { c.Data.Eval = "" },
		"no rows are named":               func(c *Config) { c.Data.Train, c.Data.Eval = "", "" },
	} {
		cfg := small(1, 1, 1)
		change(&cfg)
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
