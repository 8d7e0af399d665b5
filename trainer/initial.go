package trainer

import (
	"fmt"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/trainer/nn"
)

// initialize gives the model the values of the file that init names, by name and shape; none: it keeps its random ones.
func (t *trainer) initialize() error {
	if t.cfg.Init == "" {
		return nil
	}
	path := below(t.env.WorkDir, t.cfg.Init)
	tensors, err := checkpoint.ReadSafetensors(path)
	if err == nil {
		err = load(t.engine.model(), tensors, t.layout.line == nil)
	}
	if err != nil {
		return fmt.Errorf("init: %s: %w", path, err)
	}
	return nil
}

// load copies tensors into the parameters and buffers of their names. A prefix "model." or "module.", of an export or of PyTorch's
// DistributedDataParallel, does not count, nor does what batch normalization alone of PyTorch keeps. Where whole is true, the model
// is all that tensors may be of.
func load(model *nn.Sequential, tensors []checkpoint.Tensor, whole bool) error {
	byName := map[string]checkpoint.Tensor{}
	for _, tensor := range tensors {
		name := strings.TrimPrefix(strings.TrimPrefix(tensor.Name, "module."), "model.")
		if !strings.HasSuffix(name, ".num_batches_tracked") && !strings.HasPrefix(name, "optimizer.") {
			byName[name] = tensor
		}
	}
	var missing []string
	for _, p := range model.Params() {
		if err := fill(byName, p.Name, p.Shape, p.Value, &missing); err != nil {
			return err
		}
	}
	for _, b := range model.Buffers() {
		if err := fill(byName, b.Name, b.Shape, b.Value, &missing); err != nil {
			return err
		}
	}
	if missing != nil {
		return fmt.Errorf("it has no %s", strings.Join(missing, ", "))
	}
	if whole && len(byName) > 0 {
		var more []string
		for name := range byName {
			more = append(more, name)
		}
		slices.Sort(more)
		return fmt.Errorf("the model has no %s", strings.Join(more, ", "))
	}
	return nil
}

// fill takes the tensor of a name out of byName and copies it to value.
func fill(byName map[string]checkpoint.Tensor, name string, shape []int, value []float32, missing *[]string) error {
	tensor, ok := byName[name]
	if !ok {
		*missing = append(*missing, name)
		return nil
	}
	delete(byName, name)
	if !slices.Equal(tensor.Shape, shape) {
		return fmt.Errorf("%s is %v in the file and %v in the model", name, tensor.Shape, shape)
	}
	return tensor.ConvertTo(value)
}
