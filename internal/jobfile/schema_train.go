package jobfile

import (
	"math"
	"slices"

	"github.com/BurntSushi/toml"
)

// trainRows are the keys of [train]. Most readers check types alone: trainer.Validate says which numbers and words are possible. The
// readers also check what Validate cannot see: a written 0 or empty text, which would count as left out; a seed or a delimiter that does
// not fit its type; the kind of a table, which says what keys it has; and evaluate.best, which ckpt prune uses in any job.
func trainRows() []keyRow {
	return slices.Concat(modelRows(), dataRows(), optimizerRows(), []keyRow{
		{key: "train.epochs", read: integer(func(j *Job) *int { return &j.Train.Epochs })},
		{key: "train.max_steps", read: integer(func(j *Job) *int { return &j.Train.MaxSteps })},
		{key: "train.batch_size", read: integer(func(j *Job) *int { return &j.Train.BatchSize })},
		{key: "train.accumulate", read: integer(func(j *Job) *int { return &j.Train.Accumulate })},
		{key: "train.seed", read: taking("whole number from 0 to 4294967295", seed)},
		{key: "train.mode", read: word(func(j *Job) *string { return &j.Train.Mode }, "ddp", "dp")},
		{key: "train.replicas", read: wholeNumber(1, func(j *Job) *int { return &j.Train.Replicas })},
		{key: "train.pipeline", read: integer(func(j *Job) *int { return &j.Train.Pipeline })},
		{key: "train.micro_batches", read: wholeNumber(1, func(j *Job) *int { return &j.Train.MicroBatches })},
		{key: "train.precision", read: word(func(j *Job) *string { return &j.Train.Precision }, "float32", "bfloat16", "float16")},
		{key: "train.blas", read: line(func(j *Job) *string { return &j.Train.BLAS })},
		{key: "train.loss", read: word(func(j *Job) *string { return &j.Train.Loss }, "cross_entropy", "mse")},
		{key: "train.init", read: line(func(j *Job) *string { return &j.Train.Init })},
		{key: "train.export", read: line(func(j *Job) *string { return &j.Train.Export })},
		{key: "train.clip_norm", read: positive(func(j *Job) *float64 { return &j.Train.ClipNorm })},
		{key: "train.tensorboard", read: boolean(func(j *Job) *bool { return &j.Train.TensorBoard })},

		{key: "train.ddp.bucket_mb", read: number(func(j *Job) *float64 { return &j.Train.DDP.BucketMB })},
		{key: "train.ddp.compress", read: word(func(j *Job) *string { return &j.Train.DDP.Compress }, "none", "float16",
			"bfloat16", "int8", "powersgd")},
		{key: "train.ddp.rank", read: integer(func(j *Job) *int { return &j.Train.DDP.Rank })},
		{key: "train.ddp.start_step", read: integer(func(j *Job) *int { return &j.Train.DDP.StartStep })},
		{key: "train.ddp.overlap", read: boolean(func(j *Job) *bool { return &j.Train.DDP.Overlap })},
		{key: "train.ddp.find_unused", read: boolean(func(j *Job) *bool { return &j.Train.DDP.FindUnused })},
		{key: "train.ddp.sync_batch_norm", read: boolean(func(j *Job) *bool { return &j.Train.DDP.SyncBatchNorm })},
		{key: "train.ddp.average_every", read: integer(func(j *Job) *int { return &j.Train.DDP.AverageEvery })},
		{key: "train.ddp.average_warmup", read: integer(func(j *Job) *int { return &j.Train.DDP.AverageWarmup })},
		{key: "train.ddp.check_every_steps", read: integer(func(j *Job) *int { return &j.Train.DDP.CheckEverySteps })},

		{key: "train.evaluate.every_epochs", read: integer(func(j *Job) *int { return &j.Train.Evaluate.EveryEpochs })},
		{key: "train.evaluate.every_steps", read: integer(func(j *Job) *int { return &j.Train.Evaluate.EverySteps })},
		{key: "train.evaluate.best", read: oneOf(func(j *Job) *string { return &j.Train.Evaluate.Best }, "loss", "accuracy")},
		{key: "train.evaluate.patience", read: integer(func(j *Job) *int { return &j.Train.Evaluate.Patience })},
	})
}

// modelRows are the keys of train.model.
func modelRows() []keyRow {
	mlp, cnn, gpt := []string{"mlp"}, []string{"cnn"}, []string{"gpt"}
	return []keyRow{
		{key: "train.model", kind: func(j *Job) string { return j.Train.Model.Kind }},
		{key: "train.model.kind", read: oneOf(func(j *Job) *string { return &j.Train.Model.Kind }, "mlp", "dense", "cnn", "gpt")},
		{key: "train.model.hidden", read: widths(func(j *Job) *[]int { return &j.Train.Model.Hidden }), kinds: []string{"mlp", "cnn"}},
		{key: "train.model.activation", read: word(func(j *Job) *string { return &j.Train.Model.Activation }, "relu", "tanh"), kinds: mlp},
		{key: "train.model.dropout", read: number(func(j *Job) *float64 { return &j.Train.Model.Dropout }),
			kinds: []string{"mlp", "cnn", "gpt"}},
		{key: "train.model.channels", read: widths(func(j *Job) *[]int { return &j.Train.Model.Channels }), kinds: cnn},
		{key: "train.model.kernel", read: integer(func(j *Job) *int { return &j.Train.Model.Kernel }), kinds: cnn},
		{key: "train.model.batch_norm", read: boolean(func(j *Job) *bool { return &j.Train.Model.BatchNorm }), kinds: cnn},
		{key: "train.model.layers", read: integer(func(j *Job) *int { return &j.Train.Model.Layers }), kinds: gpt},
		{key: "train.model.heads", read: integer(func(j *Job) *int { return &j.Train.Model.Heads }), kinds: gpt},
		{key: "train.model.width", read: integer(func(j *Job) *int { return &j.Train.Model.Width }), kinds: gpt},
		{key: "train.model.context", read: integer(func(j *Job) *int { return &j.Train.Model.Context }), kinds: gpt},
	}
}

// optimizerRows are the keys of train.optimizer and train.schedule.
func optimizerRows() []keyRow {
	sgd, moments := []string{"sgd"}, []string{"adam", "adamw", "lamb"}
	return []keyRow{
		{key: "train.optimizer", kind: func(j *Job) string { return j.Train.Optimizer.Kind }},
		{key: "train.optimizer.kind", read: oneOf(func(j *Job) *string { return &j.Train.Optimizer.Kind }, "sgd", "adam", "adamw", "lamb")},
		{key: "train.optimizer.lr", read: number(func(j *Job) *float64 { return &j.Train.Optimizer.LR })},
		{key: "train.optimizer.momentum", read: number(func(j *Job) *float64 { return &j.Train.Optimizer.Momentum }), kinds: sgd},
		{key: "train.optimizer.dampening", read: number(func(j *Job) *float64 { return &j.Train.Optimizer.Dampening }), kinds: sgd},
		{key: "train.optimizer.nesterov", read: boolean(func(j *Job) *bool { return &j.Train.Optimizer.Nesterov }), kinds: sgd},
		{key: "train.optimizer.weight_decay", read: number(func(j *Job) *float64 { return &j.Train.Optimizer.WeightDecay })},
		{key: "train.optimizer.betas", read: taking("list of two numbers", betas), kinds: moments},
		{key: "train.optimizer.eps", read: number(func(j *Job) *float64 { return &j.Train.Optimizer.Eps }), kinds: moments},
		{key: "train.optimizer.zero", read: boolean(func(j *Job) *bool { return &j.Train.Optimizer.Zero })},

		{key: "train.schedule", kind: func(j *Job) string { return j.Train.Schedule.Kind }},
		{key: "train.schedule.kind", read: oneOf(func(j *Job) *string { return &j.Train.Schedule.Kind }, "constant", "step", "cosine",
			"one_cycle", "linear")},
		{key: "train.schedule.warmup_steps", read: integer(func(j *Job) *int { return &j.Train.Schedule.WarmupSteps })},
		{key: "train.schedule.step_size", read: integer(func(j *Job) *int { return &j.Train.Schedule.StepSize }), kinds: []string{"step"}},
		{key: "train.schedule.gamma", read: number(func(j *Job) *float64 { return &j.Train.Schedule.Gamma }), kinds: []string{"step"}},
		{key: "train.schedule.min_lr", read: number(func(j *Job) *float64 { return &j.Train.Schedule.MinLR }),
			kinds: []string{"cosine", "linear"}},
	}
}

// seed reads what random numbers start from. More than 32 bits would not count.
func seed(j *Job, key toml.Key, v any) error {
	n, ok := v.(int64)
	if !ok || n < 0 || n > math.MaxUint32 {
		return mustBe(key, "a whole number from 0 to 4294967295", v)
	}
	j.Train.Seed = uint64(n)
	return nil
}

// widths reads a list of at least one whole number.
func widths(to func(*Job) *[]int) reader {
	return taking("list of whole numbers", func(j *Job, key toml.Key, v any) error {
		numbers, err := integers(key, v, "a whole number", func(int64) bool { return true })
		if err == nil {
			*to(j) = numbers
		}
		return err
	})
}

// betas reads the two decay rates of Adam's moments.
func betas(j *Job, key toml.Key, v any) error {
	items, _ := v.([]any)
	if len(items) != 2 {
		return mustBe(key, "two numbers, such as [0.9, 0.999]", v)
	}
	for i, item := range items {
		beta, ok := asFloat(item)
		if !ok {
			return mustBe(key, "two numbers, such as [0.9, 0.999]", v)
		}
		j.Train.Optimizer.Betas[i] = beta
	}
	return nil
}

// dataRows are the keys of train.data.
func dataRows() []keyRow {
	idx, csv, npy, generated := []string{"mnist"}, []string{"csv"}, []string{"npy"}, []string{"generated"}
	return []keyRow{
		{key: "train.data", kind: func(j *Job) string { return j.Train.Data.Kind }},
		{key: "train.data.kind", read: oneOf(func(j *Job) *string { return &j.Train.Data.Kind }, "mnist", "generated", "cifar10", "csv",
			"npy", "text"), need: true},
		{key: "train.data.images", read: line(func(j *Job) *string { return &j.Train.Data.Images }), kinds: idx, need: true},
		{key: "train.data.labels", read: line(func(j *Job) *string { return &j.Train.Data.Labels }), kinds: idx, need: true},
		{key: "train.data.files", read: list(1, "one line of text", isLine, func(j *Job) *[]string { return &j.Train.Data.Files }),
			kinds: []string{"cifar10"}, need: true},
		{key: "train.data.path", read: line(func(j *Job) *string { return &j.Train.Data.Path }),
			kinds: []string{"csv", "text"}, need: true},
		{key: "train.data.target", read: list(1, "one line of text", isLine, func(j *Job) *[]string { return &j.Train.Data.Target }),
			kinds: csv},
		{key: "train.data.header", read: word(func(j *Job) *string { return &j.Train.Data.Header }, "auto", "yes", "no"), kinds: csv},
		{key: "train.data.delimiter", read: text("one character", isRune, func(j *Job) *string { return &j.Train.Data.Delimiter }),
			kinds: csv},
		{key: "train.data.inputs", read: taking("text (npy), whole number (generated)", inputs), kinds: []string{"npy", "generated"}},
		{key: "train.data.targets", read: line(func(j *Job) *string { return &j.Train.Data.TargetFile }), kinds: npy, need: true},
		{key: "train.data.rows", read: integer(func(j *Job) *int { return &j.Train.Data.Rows }), kinds: generated},
		{key: "train.data.outputs", read: integer(func(j *Job) *int { return &j.Train.Data.Outputs }), kinds: generated},
		{key: "train.data.noise", read: number(func(j *Job) *float64 { return &j.Train.Data.Noise }), kinds: generated},
		{key: "train.data.train", read: rowRange(func(j *Job) *string { return &j.Train.Data.Train })},
		{key: "train.data.eval", read: rowRange(func(j *Job) *string { return &j.Train.Data.Eval })},
		{key: "train.data.shuffle", read: boolean(func(j *Job) *bool { return &j.Train.Data.Shuffle })},
		{key: "train.data.remainder", read: word(func(j *Job) *string { return &j.Train.Data.Remainder }, "pad", "drop", "uneven")},
		{key: "train.data.cache", read: line(func(j *Job) *string { return &j.Train.Data.Cache }), kinds: []string{"mnist", "csv"}},
	}
}

// rowRange reads what may be a range of rows; whether it is one is said with the rest of what is wrong with the training.
func rowRange(to func(*Job) *string) reader {
	return taking("rows", text(`rows as "FIRST:END", such as "0:9000"`, isLine, to))
}

// inputs reads the file of .npy inputs, or the number of generated ones.
func inputs(j *Job, key toml.Key, v any) error {
	if j.Train.Data.Kind == "npy" {
		return line(func(j *Job) *string { return &j.Train.Data.InputFile })(j, key, v)
	}
	return integer(func(j *Job) *int { return &j.Train.Data.Inputs })(j, key, v)
}

func isRune(s string) bool { return len([]rune(s)) == 1 && isLine(s) || s == "\t" }
