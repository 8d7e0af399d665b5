package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"ddpbatch/trainer/data"
)

// Bounds of numbers in a Config, far above what anyone trains and far below what overflows.
const (
	maxEpochs = 1_000_000_000
	maxBatch  = 1 << 20
	maxWidth  = 1 << 20
	maxLayers = 1000
)

// Validate returns every fault of the table, joined, each beginning with its key.
func (c Config) Validate() error {
	var f faults
	f.between("epochs", c.Epochs, 1, maxEpochs)
	f.between("batch_size", c.BatchSize, 1, maxBatch)
	if want := lossOf(c.Data.Kind); want != "" && c.Loss != want {
		f.add("loss", c.Loss, "must be %q for data.kind = %q", want, c.Data.Kind)
	} else {
		f.oneOf("loss", c.Loss, "cross_entropy", "mse")
	}
	c.Model.validate(&f)
	c.Data.validate(&f)
	f.oneOf("optimizer.kind", c.Optimizer.Kind, "sgd")
	// What counts is the float32 that the optimizer makes of them.
	if lr := c.Optimizer.LR; !(float32(lr) > 0 && lr <= math.MaxFloat32) {
		f.add("optimizer.lr", lr, "must be a number above 0, from 1e-45 to 3e38")
	}
	if m := c.Optimizer.Momentum; !(m >= 0 && float32(m) < 1) {
		f.add("optimizer.momentum", m, "must be at least 0 and below 1, up to 0.9999999")
	}
	f.between("evaluate.every_epochs", c.Evaluate.EveryEpochs, 0, maxEpochs)
	return errors.Join(f...)
}

// lossOf is the loss that goes with a kind of data: classes or numbers.
func lossOf(kind string) string {
	return map[string]string{"mnist": "cross_entropy", "generated": "mse"}[kind]
}

func (m ModelConfig) validate(f *faults) {
	f.oneOf("model.kind", m.Kind, "mlp", "dense")
	if m.Kind != "mlp" {
		return
	}
	if len(m.Hidden) > maxLayers {
		f.add("model.hidden", len(m.Hidden), "must have at most %d layers", maxLayers)
	}
	for i, width := range m.Hidden {
		f.between(fmt.Sprintf("model.hidden[%d]", i), width, 1, maxWidth)
	}
	f.oneOf("model.activation", m.Activation, "relu", "tanh")
}

func (d DataConfig) validate(f *faults) {
	f.oneOf("data.kind", d.Kind, "mnist", "generated")
	switch d.Kind {
	case "mnist":
		f.named("data.images", d.Images)
		f.named("data.labels", d.Labels)
	case "generated":
		f.between("data.rows", d.Rows, 1, math.MaxInt32)
		f.between("data.inputs", d.Inputs, 1, maxWidth)
		f.between("data.outputs", d.Outputs, 1, maxWidth)
		if !(d.Noise >= 0 && d.Noise <= math.MaxFloat32) {
			f.add("data.noise", d.Noise, "must be a number from 0 on")
		}
	}
	f.rangeOf("data.train", d.Train)
	f.rangeOf("data.eval", d.Eval)
}

// faults collects what is wrong.
type faults []error

func (f *faults) add(key string, value any, rule string, args ...any) {
	if s, ok := value.(string); ok {
		value = fmt.Sprintf("%q", s)
	}
	*f = append(*f, fmt.Errorf("%s is %v: %s", key, value, fmt.Sprintf(rule, args...)))
}

func (f *faults) between(key string, value, low, high int) {
	if value < low || value > high {
		f.add(key, value, "must be %d to %d", low, high)
	}
}

func (f *faults) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		f.add(key, value, `must be "%s"`, strings.Join(allowed, `" or "`))
	}
}

func (f *faults) named(key, path string) {
	if path == "" {
		f.add(key, path, "must name an IDX file, plain or gzip")
	}
}

func (f *faults) rangeOf(key, value string) {
	if value == "" {
		return
	}
	if _, err := data.ParseRange(value); err != nil {
		*f = append(*f, fmt.Errorf("%s: %w", key, err))
	}
}
