package trainer

import (
	"errors"
	"fmt"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/trainer/data"
)

// maxChecked bounds the models that CheckInit builds: more parameters would take it a noticeable time.
const maxChecked = 1 << 22

// CheckInit returns an error if the header of the file that init names is not valid, or if its names and shapes do not fit the model. The
// latter needs data whose rows are known without reading them (mnist, cifar10, text, generated) and a model of at most maxChecked
// parameters. The error begins with the key. CheckInit does not report a file that cannot be opened. at returns where a file of the job is
// on this machine.
func (c Config) CheckInit(at func(path string) string) error {
	if c.Init == "" {
		return nil
	}
	path := at(c.Init)
	f, err := safetensors.Open(path)
	if errors.Is(err, safetensors.ErrInvalid) {
		return fmt.Errorf("init: %w", err)
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	spec, ok := c.specUnread(at)
	if outputs := max(spec.Outputs, spec.Classes); !ok || modelSize(c.Model, spec, outputs) > maxChecked {
		return nil
	}
	model, err := newModel(c.Model, spec, 0, nil)
	if err != nil { // the model does not suit the data
		return nil
	}
	var tensors []checkpoint.Tensor
	for _, t := range f.Tensors() {
		tensors = append(tensors, checkpoint.Tensor{Name: t.Name, Shape: t.Shape})
	}
	var names []string
	for _, a := range stateOf(model) {
		names = append(names, a.Name)
	}
	if _, err := match(model, names, tensors); err != nil {
		return fmt.Errorf("init: %s: %w", path, err)
	}
	return nil
}

// specUnread returns the spec of the data as far as it is known without reading rows.
func (c Config) specUnread(at func(path string) string) (spec data.Spec, ok bool) {
	switch d := c.Data; d.Kind {
	case "generated":
		return data.Spec{Inputs: d.Inputs, Outputs: d.Outputs}, true
	case "text":
		return data.TextSpec(c.Model.Context), true
	default:
		return data.ImagesSpec(d.Kind, at(d.Images))
	}
}

// modelSize returns about the number of parameters.
func modelSize(cfg ModelConfig, spec data.Spec, outputs int) int64 {
	switch cfg.Kind {
	case "cnn":
		return cnnSize(cfg, spec.Image, outputs)
	case "gpt":
		return gptSize(cfg, spec.Symbols, outputs)
	}
	return mlpSize(mlpWidths(cfg, spec.Inputs, outputs))
}
