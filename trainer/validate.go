package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/text"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/ddp"
)

// Bounds of numbers in a Config: far above what anyone trains with, and far below what overflows.
const (
	maxEpochs   = 1_000_000_000
	maxRunSteps = 1_000_000_000 // steps of a run
	maxSteps    = math.MaxInt32 // other counts of steps
	maxBatch    = 1 << 20
	maxWidth    = 1 << 20
	maxLayers   = 1000
	maxHeads    = 1000
	maxStages   = 1000    // of a pipeline
	maxRank     = 1 << 20 // of PowerSGD's approximation
	maxRanks    = 1 << 16
	maxBuckets  = 1 << 20 // MiB
	maxContext  = 1 << 16
)

// Validate returns every fault of the table, joined; each begins with its key. If a number is out of its range, only
// that is reported: other numbers are not compared with it.
func (c Config) Validate() error {
	var f problems
	f.between("epochs", c.Epochs, 1, maxEpochs)
	f.between("max_steps", c.MaxSteps, 0, maxRunSteps)
	f.between("batch_size", c.BatchSize, 1, maxBatch)
	f.between("accumulate", c.Accumulate, 1, maxBatch)
	f.oneOf("mode", c.Mode, "ddp", "dp")
	f.between("replicas", c.Replicas, 0, maxRanks)
	f.between("pipeline", c.Pipeline, 1, maxStages)
	f.between("micro_batches", c.MicroBatches, 0, maxBatch)
	f.oneOf("precision", c.Precision, "float32", "bfloat16", "float16")
	if c.BLAS == "" {
		f.add("blas", c.BLAS, `must be "auto", "go" or the path of a library`)
	}
	if want := lossOf(c.Data.Kind); want != "" && c.Loss != want {
		f.add("loss", c.Loss, "must be %q for data.kind = %q", want, c.Data.Kind)
	} else {
		f.oneOf("loss", c.Loss, "cross_entropy", "mse")
	}
	f.number("clip_norm", c.ClipNorm, 0, math.MaxFloat32)
	if err := safetensors.CheckName(c.Export, quotedPath); err != nil {
		f = append(f, fmt.Errorf("export: %w", err))
	}
	c.Model.validate(&f)
	c.Data.validate(&f, c.Loss)
	f.below("optimizer", optimConfig(c.Optimizer).Validate())
	c.Schedule.validate(&f, c)
	c.DDP.validate(&f)
	c.Evaluate.validate(&f, c)
	c.combinations(&f)
	return errors.Join(f...)
}

// quotedPath returns a path for an error.
func quotedPath(path string) string { return redact.Quoted(path, 1<<12) }

// combinations refuses settings that exclude each other.
func (c Config) combinations(f *problems) {
	if c.Pipeline > 1 && c.Mode == "dp" {
		f.add("mode", c.Mode, `must be "ddp" if pipeline is above 1: then a rank holds only a part of a replica`)
	}
	if c.Mode == "dp" && c.DDP.SyncBatchNorm {
		f.add("ddp.sync_batch_norm", c.DDP.SyncBatchNorm,
			`must be false with mode = "dp": each replica of a process normalizes its own rows`)
	}
	if c.DDP.AverageEvery > 0 && c.Optimizer.Zero {
		f.add("optimizer.zero", c.Optimizer.Zero, "must be false with ddp.average_every: then each rank updates all of its parameters")
	}
	if c.DDP.AverageEvery > 0 && c.Precision == "float16" {
		f.add("precision", c.Precision, "must not be float16 with ddp.average_every: each rank would skip other steps")
	}
	if feedback := c.DDP.Compress == "int8" || c.DDP.Compress == "powersgd"; feedback && c.Precision == "float16" {
		f.add("ddp.compress", c.DDP.Compress,
			`cannot be used with precision = "float16", whose loss scale changes between steps: use bfloat16, or another compression`)
	}
	c.ineffective(f)
	if c.Mode != "dp" && within(c.Replicas, 1, maxRanks) {
		f.add("replicas", c.Replicas, `belongs to mode = "dp"`)
	}
	if c.Model.Kind == "gpt" && c.Data.Kind != "text" {
		f.add("model.kind", c.Model.Kind, `needs data.kind = "text"`)
	}
	if c.Model.Kind == "cnn" && (c.Data.Kind == "csv" || c.Data.Kind == "generated") {
		f.add("model.kind", c.Model.Kind, "needs images: data.kind = %q has none", c.Data.Kind)
	}
	if c.Model.Kind != "gpt" && c.Data.Kind == "text" {
		f.add("data.kind", c.Data.Kind, `needs model.kind = "gpt"`)
	}
}

// ineffective refuses settings that would have no effect: whoever writes them expects one.
func (c Config) ineffective(f *problems) {
	micro := within(c.MicroBatches, 1, maxBatch)
	evaluates := c.Evaluate.EveryEpochs != 0 || c.Evaluate.EverySteps != 0
	for _, s := range []struct {
		unless  bool
		key     string
		value   any
		written bool
		rule    string
	}{
		{c.Pipeline != 1, "micro_batches", c.MicroBatches, micro, "belongs to pipeline above 1"},
		{c.Model.Kind == "cnn" && c.Model.BatchNorm, "ddp.sync_batch_norm", c.DDP.SyncBatchNorm, c.DDP.SyncBatchNorm,
			"belongs to a cnn with model.batch_norm"},
		{c.DDP.AverageEvery != 0, "ddp.average_warmup", c.DDP.AverageWarmup, within(c.DDP.AverageWarmup, 1, maxSteps),
			"belongs to ddp.average_every"},
		{c.Data.Eval != "", "evaluate.every_steps", c.Evaluate.EverySteps, within(c.Evaluate.EverySteps, 1, maxSteps),
			"needs rows to evaluate on: set data.eval"},
		{evaluates, "evaluate.best", c.Evaluate.Best, c.Evaluate.Best != "", "needs evaluate.every_epochs or every_steps"},
		{len(c.Model.hidden()) > 0, "model.dropout", c.Model.Dropout, c.Model.Kind == "mlp" && c.Model.drops(),
			"needs hidden layers, and the model has none"},
	} {
		if s.written && !s.unless {
			f.add(s.key, s.value, "%s", s.rule)
		}
	}
	if micro && c.MicroBatches > c.BatchSize && c.BatchSize > 0 {
		f.add("micro_batches", c.MicroBatches, "must be at most batch_size, %d", c.BatchSize)
	}
	if c.Data.Eval != "" && c.Data.Train == "" {
		f.add("data.eval", c.Data.Eval, "needs data.train, too: without it, these rows would also be trained on")
	}
}

// lossOf returns the loss that goes with a kind of data, or an empty name if that depends on the file.
func lossOf(kind string) string {
	return map[string]string{"mnist": "cross_entropy", "cifar10": "cross_entropy", "text": "cross_entropy", "generated": "mse"}[kind]
}

func (m ModelConfig) validate(f *problems) {
	f.oneOf("model.kind", m.Kind, "mlp", "dense", "cnn", "gpt")
	if m.Dropout != 0 && !m.drops() {
		f.add("model.dropout", m.Dropout, "must be at least 0 and below 1")
	}
	switch m.Kind {
	case "dense":
		if m.drops() {
			f.add("model.dropout", m.Dropout, "must be 0 for one linear layer")
		}
	case "mlp":
		f.widths("model.hidden", m.Hidden)
		f.oneOf("model.activation", m.Activation, "relu", "tanh")
	case "cnn":
		f.widths("model.channels", m.Channels)
		f.widths("model.hidden", m.Hidden)
		if len(m.Channels) == 0 {
			f.add("model.channels", m.Channels, "must name the channels of at least one convolution")
		}
		if m.Kernel < 1 || m.Kernel > 31 || m.Kernel%2 == 0 {
			f.add("model.kernel", m.Kernel, "must be an odd number from 1 to 31")
		}
	case "gpt":
		f.between("model.layers", m.Layers, 1, maxLayers)
		width := f.between("model.width", m.Width, 1, maxWidth)
		f.between("model.context", m.Context, 1, maxContext)
		if heads := f.between("model.heads", m.Heads, 1, maxHeads); heads && width && m.Width%m.Heads != 0 {
			f.add("model.width", m.Width, "must be a multiple of model.heads, %d", m.Heads)
		}
	}
}

// drops reports whether there is a dropout, within its range.
func (m ModelConfig) drops() bool { return m.Dropout > 0 && m.Dropout < 1 }

func (d DataConfig) validate(f *problems, loss string) {
	f.oneOf("data.kind", d.Kind, "mnist", "cifar10", "csv", "npy", "text", "generated")
	switch d.Kind {
	case "mnist":
		f.named("data.images", d.Images, "an IDX file, plain or gzip")
		f.named("data.labels", d.Labels, "an IDX file, plain or gzip")
	case "cifar10":
		if len(d.Files) == 0 {
			f.add("data.files", d.Files, "must name CIFAR-10's binary files, data_batch_1.bin and so on")
		}
		if i := slices.Index(d.Files, ""); i >= 0 {
			f.named(fmt.Sprintf("data.files[%d]", i), "", "a binary file of CIFAR-10")
		}
	case "csv":
		f.named("data.path", d.Path, "a CSV file")
		f.named("data.delimiter", d.Delimiter, "one character")
		f.below("data", d.csv("", loss).Validate())
	case "npy":
		f.named("data.inputs", d.InputFile, "a .npy file")
		f.named("data.targets", d.TargetFile, "a .npy file")
	case "text":
		f.named("data.path", d.Path, "a file or a folder of files")
	case "generated":
		before := len(*f)
		f.between("data.rows", d.Rows, 1, math.MaxInt32)
		f.between("data.inputs", d.Inputs, 1, maxWidth)
		f.between("data.outputs", d.Outputs, 1, maxWidth)
		f.number("data.noise", d.Noise, 0, math.MaxFloat32)
		if err := d.generated(0).Validate(); err != nil && len(*f) == before {
			f.below("data", err)
		}
	}
	f.oneOf("data.remainder", d.Remainder, "pad", "drop", "uneven")
	f.rangeOf("data.train", d, d.Train)
	f.rangeOf("data.eval", d, d.Eval)
}

func (s ScheduleConfig) validate(f *problems, c Config) {
	steps := int64(math.MaxInt64) // no limit
	if within(c.MaxSteps, 1, maxRunSteps) {
		steps = int64(c.MaxSteps)
	}
	// What is out of range is reported here; reset it, so that it is not reported a second time below.
	lr := c.Optimizer.LR
	if !(float32(lr) > 0 && lr <= math.MaxFloat32) { // reported for optimizer.lr: do not compare other numbers with it
		lr = 1
		if s.Kind == "cosine" || s.Kind == "linear" {
			f.number("schedule.min_lr", s.MinLR, 0, math.MaxFloat32)
			s.MinLR = 0
		}
	}
	if !f.between("schedule.warmup_steps", s.WarmupSteps, 0, maxSteps) {
		s.WarmupSteps = 0
	}
	if s.Kind == "step" && !f.between("schedule.step_size", s.StepSize, 1, maxSteps) {
		s.StepSize = 1
	}
	if s.Kind == "step" && !(s.Gamma > 0 && s.Gamma <= 1) {
		f.add("schedule.gamma", s.Gamma, "must be a number above 0, up to 1")
		s.Gamma = 1
	}
	f.below("schedule", scheduleConfig(s, steps).Validate(lr))
}

func (d DDPConfig) validate(f *problems) {
	if !(d.BucketMB > 0 && d.BucketMB <= maxBuckets) {
		f.add("ddp.bucket_mb", d.BucketMB, "must be a number above 0, up to %d", maxBuckets)
	}
	f.oneOf("ddp.compress", d.Compress, "none", "float16", "bfloat16", "int8", "powersgd")
	f.between("ddp.rank", d.Rank, 1, maxRank)
	mostStart := maxSteps
	if d.Compress == "powersgd" {
		mostStart = ddp.MaxStart
	}
	f.between("ddp.start_step", d.StartStep, 0, mostStart)
	f.between("ddp.average_every", d.AverageEvery, 0, maxSteps)
	f.between("ddp.average_warmup", d.AverageWarmup, 0, maxSteps)
	f.between("ddp.check_every_steps", d.CheckEverySteps, 0, maxSteps)
}

func (e EvaluateConfig) validate(f *problems, c Config) {
	f.between("evaluate.every_epochs", e.EveryEpochs, 0, maxEpochs)
	f.between("evaluate.every_steps", e.EverySteps, 0, maxSteps)
	f.between("evaluate.patience", e.Patience, 0, maxSteps)
	if e.Best != "" {
		f.oneOf("evaluate.best", e.Best, "loss", "accuracy")
	}
	if e.Best == "accuracy" && c.Loss == "mse" {
		f.add("evaluate.best", e.Best, `must be "loss" for regression`)
	}
	if within(e.Patience, 1, maxSteps) && e.Best == "" {
		f.add("evaluate.patience", e.Patience, `needs evaluate.best = "loss" or "accuracy"`)
	}
	if e.Best != "" && c.Data.Eval == "" {
		f.add("evaluate.best", e.Best, "needs rows to evaluate on: set data.eval")
	}
}

// problems collects faults.
type problems []error

func (f *problems) add(key string, value any, rule string, args ...any) {
	if s, ok := value.(string); ok {
		value = redact.Quoted(s, redact.Shown)
	}
	*f = append(*f, fmt.Errorf("%s is %v: %s", key, value, fmt.Sprintf(rule, args...)))
}

// below adds the faults that another package has found in a table; each begins with its key.
func (f *problems) below(table string, err error) {
	if err == nil {
		return
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		*f = append(*f, fmt.Errorf("%s.%w", table, err))
	}
}

func within(value, low, high int) bool { return value >= low && value <= high }

func (f *problems) between(key string, value, low, high int) bool {
	if !within(value, low, high) {
		f.add(key, value, "must be %d to %d", low, high)
		return false
	}
	return true
}

// number requires a finite number from low to high.
func (f *problems) number(key string, value, low, high float64) {
	switch {
	case value >= low && value <= high:
	case high == math.MaxFloat32:
		f.add(key, value, "must be a number from %v on", low)
	default:
		f.add(key, value, "must be a number from %v to %v", low, high)
	}
}

func (f *problems) widths(key string, widths []int) {
	if len(widths) > maxLayers {
		f.add(key, len(widths), "must have at most %d layers", maxLayers)
	}
	for i, width := range widths {
		f.between(fmt.Sprintf("%s[%d]", key, i), width, 1, maxWidth)
	}
}

func (f *problems) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		f.add(key, value, "must be %s", text.Choice(allowed))
	}
}

func (f *problems) named(key, path, what string) {
	if path == "" {
		f.add(key, path, "must name %s", what)
	}
}

// rangeOf requires a range of rows that d has, as far as d says how many it has.
func (f *problems) rangeOf(key string, d DataConfig, value string) {
	if value == "" {
		return
	}
	r, err := data.ParseRange(value)
	if err != nil {
		*f = append(*f, fmt.Errorf("%s: %w", key, err))
		return
	}
	if d.Kind == "generated" && r.End > d.Rows && d.Rows > 0 {
		*f = append(*f, fmt.Errorf("%s: range %v goes beyond the data, which has %d rows", key, r, d.Rows))
	}
}
