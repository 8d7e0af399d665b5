package main

import (
	"fmt"
	"slices"
)

// model is one of the models that are trained.
type model struct {
	name       string
	title      string
	parameters int
	batch      int // rows per rank and step
	rows       int
	lr         float64
	loss       string
	job        string // the keys model and data of the job's table [train]
	epochs     int    // for one rank; several ranks have that many times as many, for the same number of steps
	warmUp     int    // steps before the clock starts
	times      int    // ddpbatch trains times as many epochs if a launch would be too short to be timed
}

// models are in the order of the tables. For one rank and for two, an epoch has more than ten steps, and a run has a multiple of ten, so
// that the last line of metrics covers about ten steps.
var models = []model{
	{
		name: "dense", title: "dense 20-1", parameters: 21, batch: 32, rows: 4096, lr: 0.01, loss: "mse",
		job: `model = { kind = "dense" }
data = { kind = "npy", inputs = "../dense-inputs.npy", targets = "../dense-targets.npy", shuffle = false }`,
		epochs: 50, warmUp: 640, times: 20,
	},
	{
		name: "mlp", title: "MLP 784-512-256-10", parameters: 535_818, batch: 64, rows: imageRows, lr: 0.02, loss: "cross_entropy",
		job: `model = { kind = "mlp", hidden = [512, 256] }
data = { kind = "npy", inputs = "../mlp-inputs.npy", targets = "../mlp-targets.npy", shuffle = false }`,
		epochs: 8, warmUp: 40, times: 1,
	},
	{
		name: "cnn", title: "CNN 16-32", parameters: 20_490, batch: 64, rows: imageRows, lr: 0.02, loss: "cross_entropy",
		job: `model = { kind = "cnn", channels = [16, 32], kernel = 3 }
data = { kind = "npy", inputs = "../cnn-inputs.npy", targets = "../cnn-targets.npy", shuffle = false }`,
		epochs: 2, warmUp: 20, times: 1,
	},
	{
		name: "gpt", title: "GPT 4 x 128", parameters: 875_264, batch: 8, rows: textRows, lr: 0.02, loss: "cross_entropy",
		job: `model = { kind = "gpt", layers = 4, heads = 4, width = 128, context = 128 }
data = { kind = "text", path = "../text.bin", shuffle = false }`,
		epochs: 1, warmUp: 10, times: 1,
	},
}

func modelNames() []string {
	var names []string
	for _, m := range models {
		names = append(names, m.name)
	}
	return names
}

func modelsOf(names []string) []model {
	return slices.DeleteFunc(slices.Clone(models), func(m model) bool { return !slices.Contains(names, m.name) })
}

// steps returns the number of steps of a launch, for any number of ranks that divides the epoch, and times as many epochs.
func (m model) steps(times int) int { return m.rows / m.batch * m.epochs * times }

// jobText returns the job file of a launch.
func (m model) jobText(ranks int) string {
	return fmt.Sprintf(`schema = 1
name = %q

[train]
epochs = %d
batch_size = %d
seed = 1
loss = %q
%s
optimizer = { kind = "sgd", lr = %g, momentum = 0.9 }
evaluate = { every_epochs = 0 }

[checkpoint]
every_steps = 0
`, m.name, m.epochs*m.times*ranks, m.batch, m.loss, m.job, m.lr)
}
