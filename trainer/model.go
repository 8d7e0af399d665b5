package trainer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mathext/prng"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/mpi"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/nn"
)

// maxParameters bounds a model: 8 GiB of float32 before gradients and momentum.
const maxParameters = 1 << 31

// newModel builds the layers from spec's inputs to its outputs or classes, with
// the initial values that PyTorch has after torch.manual_seed(seed).
// sums reduces batch normalization over ranks; if it is nil, only the rank's own rows are used.
func newModel(cfg ModelConfig, spec data.Spec, seed uint64, sums nn.Reducer) (*nn.Sequential, error) {
	if err := checkData(cfg, spec); err != nil {
		return nil, err
	}
	src := prng.NewMT19937() // the generator behind torch.manual_seed on a CPU, which uses only the low 32 bits of seed
	src.Seed(seed)
	outputs := max(spec.Outputs, spec.Classes)
	switch cfg.Kind {
	case "cnn":
		return newCNN(cfg, spec, outputs, src, sums)
	case "gpt":
		if err := bounded(gptSize(cfg, spec.Symbols, outputs)); err != nil {
			return nil, err
		}
		if n := int64(cfg.Layers) * int64(cfg.Heads) * int64(cfg.Context) * int64(cfg.Context); n > maxParameters {
			return nil, fmt.Errorf("attention keeps %d numbers for each sequence, more than %d: make model.context smaller", n,
				maxParameters)
		}
		return nn.NewGPT(nn.GPTConfig{
			Layers: cfg.Layers, Heads: cfg.Heads, Width: cfg.Width, Context: cfg.Context, Symbols: spec.Symbols, Dropout: cfg.Dropout,
		}, src), nil
	default:
		return newMLP(cfg, spec.Inputs, outputs, src)
	}
}

// checkData refuses data that does not suit a kind of model.
func checkData(cfg ModelConfig, spec data.Spec) error {
	switch {
	case cfg.Kind == "gpt" && spec.Symbols == 0:
		return fmt.Errorf(`model.kind is "gpt", but the data is not text: set data.kind = "text"`)
	case cfg.Kind != "gpt" && spec.Symbols > 0:
		return fmt.Errorf(`the data is text, but model.kind is %q: only "gpt" reads symbols`, cfg.Kind)
	case cfg.Kind == "cnn" && spec.Image.Channels == 0:
		return fmt.Errorf(`model.kind is "cnn", but the rows are not images: ` +
			`use "mlp", or data of kind mnist, cifar10 or npy with 3 or 4 dimensions`)
	}
	return nil
}

func bounded(size int64) error {
	if size > maxParameters {
		return fmt.Errorf("the model has more than %d parameters: make it smaller", maxParameters)
	}
	return nil
}

// mlpWidths returns the widths of an mlp or a dense model, from its inputs to its outputs.
func mlpWidths(cfg ModelConfig, inputs, outputs int) []int {
	widths := []int{inputs}
	if cfg.Kind == "mlp" {
		widths = append(widths, cfg.hidden()...)
	}
	return append(widths, outputs)
}

func newMLP(cfg ModelConfig, inputs, outputs int, src nn.Source) (*nn.Sequential, error) {
	widths := mlpWidths(cfg, inputs, outputs)
	if err := bounded(mlpSize(widths)); err != nil {
		return nil, err
	}
	layers := []nn.Module{nn.NewLinear(widths[0], widths[1], src)}
	for i := 1; i < len(widths)-1; i++ {
		layers = append(layers, newActivation(cfg.Activation))
		if cfg.Dropout > 0 {
			layers = append(layers, nn.NewDropout(cfg.Dropout, uint64(i)))
		}
		layers = append(layers, nn.NewLinear(widths[i], widths[i+1], src))
	}
	return nn.NewSequential(layers...), nil
}

func mlpSize(widths []int) (size int64) {
	for i, in := range widths[:len(widths)-1] {
		// Cannot overflow: widths are below 2^31, and the sum stops growing at the bound.
		if size += int64(in+1) * int64(widths[i+1]); size > maxParameters {
			return size
		}
	}
	return size
}

func newActivation(name string) nn.Module {
	if name == "tanh" {
		return nn.NewTanh()
	}
	return nn.NewReLU()
}

func newCNN(cfg ModelConfig, spec data.Spec, outputs int, src nn.Source, sums nn.Reducer) (*nn.Sequential, error) {
	c := nn.CNNConfig{
		In: nn.Image(spec.Image), Channels: cfg.Channels, Kernel: cfg.Kernel, BatchNorm: cfg.BatchNorm, Reducer: sums,
		Hidden: cfg.hidden(), Dropout: cfg.Dropout, Classes: outputs,
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := bounded(cnnSize(cfg, spec.Image, outputs)); err != nil {
		return nil, err
	}
	return nn.NewCNN(c, src), nil
}

// cnnSize returns about the number of parameters of a cnn, counting its largest matrices.
func cnnSize(cfg ModelConfig, image data.Image, outputs int) int64 {
	size := int64(0)
	in := int64(image.Channels)
	for _, out := range cfg.Channels {
		// Cannot overflow: widths are at most 2^20, kernels 31 x 31, and the sum stops growing at the bound.
		if size += in * int64(out) * int64(cfg.Kernel*cfg.Kernel); size > maxParameters {
			return size
		}
		in = int64(out)
	}
	in *= int64(image.Height>>len(cfg.Channels)) * int64(image.Width>>len(cfg.Channels))
	for _, out := range append(slices.Clone(cfg.hidden()), outputs) {
		if size += in * int64(out); size > maxParameters {
			return size
		}
		in = int64(out)
	}
	return size
}

// gptSize returns the number of parameters of a gpt. Validate's bounds keep it below 2^63.
func gptSize(cfg ModelConfig, symbols, outputs int) int64 {
	width, layers := int64(cfg.Width), int64(cfg.Layers)
	return width*int64(symbols+cfg.Context+outputs) + layers*(12*width*width+13*width) + 2*width
}

// initialize loads the values of the file that init names into the model, by name and shape, and copies those of the first replica to all.
// Without a file the model keeps its random values. It is collective.
func (t *trainer) initialize(ctx context.Context) error {
	if t.cfg.Init == "" {
		return nil
	}
	if err := mpi.Agree(ctx, t.env.Comm, t.readInitial(), classes...); err != nil {
		return err
	}
	var values [][]float32
	for _, a := range stateOf(t.engine.model()) {
		values = append(values, a.Value)
	}
	return mpi.BroadcastMany(ctx, t.topology.dataParallelGroup, values, 0)
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

// load copies tensors into the parameters and buffers of their names, which match finds.
func load(model *nn.Sequential, names []string, tensors []checkpoint.Tensor) error {
	byName, err := match(model, names, tensors)
	if err != nil {
		return err
	}
	for _, a := range stateOf(model) {
		tensor := byName[a.Name]
		if err := tensor.ConvertTo(a.Value); err != nil {
			return err
		}
	}
	return nil
}

// match finds the tensors of a model's parameters and buffers by name, and compares their shapes. It ignores a prefix "model." or
// "module.", of an export or of PyTorch's DistributedDataParallel, and tensors that only PyTorch's batch normalization has. names are those
// of the whole model, of which model may be a part: a tensor of another name is an error. match does not read the tensors' data.
func match(model *nn.Sequential, names []string, tensors []checkpoint.Tensor) (map[string]checkpoint.Tensor, error) {
	byName := map[string]checkpoint.Tensor{}
	var foreign, lacking []string
	for _, tensor := range tensors {
		name := strings.TrimPrefix(strings.TrimPrefix(tensor.Name, "module."), "model.")
		if strings.HasSuffix(name, ".num_batches_tracked") || strings.HasPrefix(name, "optimizer.") {
			continue
		}
		if _, twice := byName[name]; twice {
			return nil, fmt.Errorf("the file has %s twice, with and without a prefix", name)
		}
		if !slices.Contains(names, name) {
			foreign = append(foreign, name)
		}
		byName[name] = tensor
	}
	for _, name := range names {
		if _, ok := byName[name]; !ok {
			lacking = append(lacking, name)
		}
	}
	switch {
	case len(foreign) > 0 && len(lacking) > 0:
		return nil, fmt.Errorf("the file has %s, which the model does not have, and lacks %s", firstOf(foreign), firstOf(lacking))
	case len(foreign) > 0:
		return nil, fmt.Errorf("the model has no %s", firstOf(foreign))
	case len(lacking) > 0:
		return nil, fmt.Errorf("the file has no %s", firstOf(lacking))
	}
	for _, a := range stateOf(model) {
		tensor := byName[a.Name]
		if !slices.Equal(tensor.Shape, a.Shape) {
			return nil, fmt.Errorf("%s is %v in the file and %v in the model", a.Name, tensor.Shape, a.Shape)
		}
	}
	return byName, nil
}

// firstOf returns the first of names, and how many there are besides.
func firstOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

// stateOf returns everything that a model's state consists of: its parameters, as buffers, and its buffers.
func stateOf(model *nn.Sequential) (all []nn.Buffer) {
	for _, p := range model.Params() {
		all = append(all, nn.Buffer{Name: p.Name, Shape: p.Shape, Value: p.Value})
	}
	for _, b := range model.Buffers() {
		all = append(all, *b)
	}
	return all
}
