package trainer

import (
	"fmt"
	"path/filepath"

	"ddpbatch/trainer/data"
	"ddpbatch/trainer/internal/mt19937"
	"ddpbatch/trainer/nn"
)

// maxParameters bounds a model: 8 GiB of float32 before gradients and momentum.
const maxParameters = 1 << 31

// openData returns the rows to train on and those to evaluate, nil where there are none.
func openData(cfg DataConfig, seed uint64, workDir string) (train, eval data.Dataset, err error) {
	whole, err := openWhole(cfg, seed, workDir)
	if err != nil {
		return nil, nil, err
	}
	train = whole
	if cfg.Train != "" {
		if train, err = rowsOf(whole, cfg.Train); err != nil {
			return nil, nil, fmt.Errorf("data.train: %w", err)
		}
	}
	if cfg.Eval != "" {
		if eval, err = rowsOf(whole, cfg.Eval); err != nil {
			return nil, nil, fmt.Errorf("data.eval: %w", err)
		}
	}
	return train, eval, nil
}

func openWhole(cfg DataConfig, seed uint64, workDir string) (data.Dataset, error) {
	if cfg.Kind == "generated" {
		return data.Generate(data.GeneratedConfig{
			Rows: cfg.Rows, Inputs: cfg.Inputs, Outputs: cfg.Outputs, Noise: cfg.Noise, Seed: seed,
		})
	}
	set, err := data.LoadMNIST(below(workDir, cfg.Images), below(workDir, cfg.Labels))
	if err != nil {
		return nil, fmt.Errorf("%w (data.images and data.labels name the files, relative to workdir)", err)
	}
	return set, nil
}

func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func rowsOf(d data.Dataset, text string) (data.Dataset, error) {
	r, err := data.ParseRange(text)
	if err != nil {
		return nil, err
	}
	return data.Subset(d, r)
}

// newModel builds the layers from spec's inputs to its outputs or classes, with
// the initial values that PyTorch has after torch.manual_seed(seed).
func newModel(cfg ModelConfig, spec data.Spec, seed uint64) (nn.Module, error) {
	widths := []int{spec.Inputs}
	if cfg.Kind == "mlp" {
		widths = append(widths, cfg.Hidden...)
	}
	widths = append(widths, max(spec.Outputs, spec.Classes))

	var size int64
	for i, in := range widths[:len(widths)-1] {
		// No overflow: widths are below 2^31, and the sum stops growing at the bound.
		if size += int64(in+1) * int64(widths[i+1]); size > maxParameters {
			return nil, fmt.Errorf("the model has more than %d parameters; make model.hidden smaller", maxParameters)
		}
	}

	src := mt19937.New(seed)
	layers := []nn.Module{nn.NewLinear(widths[0], widths[1], src)}
	for i := 1; i < len(widths)-1; i++ {
		layers = append(layers, newActivation(cfg.Activation), nn.NewLinear(widths[i], widths[i+1], src))
	}
	return nn.NewSequential(layers...), nil
}

func newActivation(name string) nn.Module {
	if name == "tanh" {
		return nn.NewTanh()
	}
	return nn.NewReLU()
}

// lossFunc returns the mean loss of outputs y for the rows of b, and its gradient.
type lossFunc func(y nn.Matrix, b *data.Batch) (float64, nn.Matrix)

func newLoss(name string) lossFunc {
	if name == "mse" {
		var mse nn.MSE
		return func(y nn.Matrix, b *data.Batch) (float64, nn.Matrix) {
			return mse.Loss(y, nn.Matrix{Rows: y.Rows, Cols: y.Cols, Data: b.Y})
		}
	}
	var entropy nn.CrossEntropy
	return func(y nn.Matrix, b *data.Batch) (float64, nn.Matrix) {
		return entropy.Loss(y, b.Labels)
	}
}
