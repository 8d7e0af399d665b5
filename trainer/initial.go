package trainer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// initialize gives the model the values of the file that init names, by name and shape, and all replicas those of the first; no file: they
// keep their random ones. It is collective.
func (t *trainer) initialize(ctx context.Context) error {
	if t.cfg.Init == "" {
		return nil
	}
	if err := together(ctx, t.env.Comm, t.readInitial()); err != nil {
		return err
	}
	var values [][]float32
	for _, p := range t.engine.model().Params() {
		values = append(values, p.Value)
	}
	for _, b := range t.engine.model().Buffers() {
		values = append(values, b.Value)
	}
	return mpi.BroadcastMany(ctx, t.layout.peers, values, 0)
}

func (t *trainer) readInitial() error {
	path := below(t.env.WorkDir, t.cfg.Init)
	tensors, _, err := safetensors.ReadFile(path)
	if err == nil {
		err = load(t.engine.model(), t.names, tensors)
	}
	if err != nil {
		return fmt.Errorf("init: %s: %w", path, err)
	}
	return nil
}

// load copies tensors into the parameters and buffers of their names. A prefix "model." or "module.", of an export or of PyTorch's
// DistributedDataParallel, does not count, nor does what batch normalization alone of PyTorch keeps. names are those of the whole model, of
// which model may be a part: a tensor of another name is an error.
func load(model *nn.Sequential, names []string, tensors []checkpoint.Tensor) error {
	byName := map[string]checkpoint.Tensor{}
	for _, tensor := range tensors {
		name := strings.TrimPrefix(strings.TrimPrefix(tensor.Name, "module."), "model.")
		if strings.HasSuffix(name, ".num_batches_tracked") || strings.HasPrefix(name, "optimizer.") {
			continue
		}
		if _, twice := byName[name]; twice {
			return fmt.Errorf("it has %s twice, with and without a prefix", name)
		}
		if !slices.Contains(names, name) {
			return fmt.Errorf("the model has no %s", name)
		}
		byName[name] = tensor
	}
	for _, p := range model.Params() {
		if err := fill(byName, p.Name, p.Shape, p.Value); err != nil {
			return err
		}
	}
	for _, b := range model.Buffers() {
		if err := fill(byName, b.Name, b.Shape, b.Value); err != nil {
			return err
		}
	}
	return nil
}

// namesOf are the names of all that a model's state is made of.
func namesOf(model *nn.Sequential) []string {
	var names []string
	for _, p := range model.Params() {
		names = append(names, p.Name)
	}
	for _, b := range model.Buffers() {
		names = append(names, b.Name)
	}
	return names
}

// fill copies the tensor of a name to value.
func fill(byName map[string]checkpoint.Tensor, name string, shape []int, value []float32) error {
	tensor, ok := byName[name]
	if !ok {
		return fmt.Errorf("it has no %s", name)
	}
	if !slices.Equal(tensor.Shape, shape) {
		return fmt.Errorf("%s is %v in the file and %v in the model", name, tensor.Shape, shape)
	}
	return tensor.ConvertTo(value)
}
