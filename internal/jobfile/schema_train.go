package jobfile

import (
	"math"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// trainRows are the keys of [train].
func trainRows() []row {
	mlp := []string{"mlp"}
	idx, generated := []string{"mnist"}, []string{"generated"}
	return []row{
		{key: "train.epochs", read: whole(1, most, func(j *Job) *int { return &j.Train.Epochs })},
		{key: "train.batch_size", read: whole(1, most, func(j *Job) *int { return &j.Train.BatchSize })},
		{key: "train.seed", read: seed},
		{key: "train.mode", read: oneOf(unused[string], "ddp", "dp")},
		{key: "train.pipeline", read: whole(1, most, unused[int])},
		{key: "train.precision", read: oneOf(unused[string], "float32", "bfloat16", "float16")},
		{key: "train.blas", read: line(unused[string])},
		{key: "train.loss", read: oneOf(func(j *Job) *string { return &j.Train.Loss }, "cross_entropy", "mse")},
		{key: "train.init", read: line(unused[string])},

		{key: "train.model", kind: func(j *Job) string { return j.Train.Model.Kind }},
		{key: "train.model.kind", read: oneOf(func(j *Job) *string { return &j.Train.Model.Kind }, "mlp", "dense", "cnn", "gpt")},
		{key: "train.model.hidden", read: hidden, kinds: mlp},
		{key: "train.model.activation", read: oneOf(func(j *Job) *string { return &j.Train.Model.Activation }, "relu", "tanh"), kinds: mlp},

		{key: "train.data", kind: func(j *Job) string { return j.Train.Data.Kind }},
		{key: "train.data.kind", read: oneOf(func(j *Job) *string { return &j.Train.Data.Kind }, "mnist", "generated", "cifar10", "csv", "npy", "text"), need: true},
		{key: "train.data.images", read: line(func(j *Job) *string { return &j.Train.Data.Images }), kinds: idx, need: true},
		{key: "train.data.labels", read: line(func(j *Job) *string { return &j.Train.Data.Labels }), kinds: idx, need: true},
		{key: "train.data.rows", read: whole(1, most, func(j *Job) *int { return &j.Train.Data.Rows }), kinds: generated},
		{key: "train.data.inputs", read: whole(1, most, func(j *Job) *int { return &j.Train.Data.Inputs }), kinds: generated},
		{key: "train.data.outputs", read: whole(1, most, func(j *Job) *int { return &j.Train.Data.Outputs }), kinds: generated},
		{key: "train.data.noise", read: number("a number of at least 0", notNegative, func(j *Job) *float64 { return &j.Train.Data.Noise }), kinds: generated},
		{key: "train.data.train", read: rowRange(func(j *Job) *string { return &j.Train.Data.Train })},
		{key: "train.data.eval", read: rowRange(func(j *Job) *string { return &j.Train.Data.Eval })},
		{key: "train.data.shuffle", read: truth(func(j *Job) *bool { return &j.Train.Data.Shuffle })},

		{key: "train.optimizer.kind", read: oneOf(func(j *Job) *string { return &j.Train.Optimizer.Kind }, "sgd")},
		{key: "train.optimizer.lr", read: number("a number above 0", positive, func(j *Job) *float64 { return &j.Train.Optimizer.LR })},
		{key: "train.optimizer.momentum", read: number("a number from 0 to below 1", fraction, func(j *Job) *float64 { return &j.Train.Optimizer.Momentum })},

		{key: "train.schedule.kind", read: oneOf(unused[string], "constant", "cosine")},
		{key: "train.schedule.warmup_steps", read: whole(0, most, unused[int])},

		{key: "train.ddp.bucket_mb", read: number("a number above 0", positive, unused[float64])},
		{key: "train.ddp.compress", read: line(unused[string])},
		{key: "train.ddp.overlap", read: truth(unused[bool])},

		{key: "train.evaluate.every_epochs", read: whole(0, most, func(j *Job) *int { return &j.Train.Evaluate.EveryEpochs })},
	}
}

func fraction(x float64) bool { return x >= 0 && x < 1 }

// seed reads what random numbers start from. More than 32 bits would not count.
func seed(j *Job, key toml.Key, v any) error {
	n, ok := v.(int64)
	if !ok || n < 0 || n > math.MaxUint32 {
		return mustBe(key, "a whole number from 0 to 4294967295", v)
	}
	j.Train.Seed = uint64(n)
	return nil
}

// hidden reads the widths of an MLP's hidden layers.
func hidden(j *Job, key toml.Key, v any) (err error) {
	j.Train.Model.Hidden, err = counts(key, v)
	return err
}

// rowRange reads rows of a data set, "first:past-the-last".
func rowRange(to func(*Job) *string) reader {
	return text(`rows as "first:past-the-last", such as "0:9000"`, isRowRange, to)
}

func isRowRange(s string) bool {
	a, b, ok := strings.Cut(s, ":")
	first, errA := strconv.ParseUint(a, 10, 64)
	past, errB := strconv.ParseUint(b, 10, 64)
	return ok && errA == nil && errB == nil && first < past && past <= most
}
