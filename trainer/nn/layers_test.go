package nn_test

import (
	"fmt"
	"slices"

	"ddpbatch/trainer/nn"
)

// layerCase is a module here and the same one in PyTorch.
type layerCase struct {
	Code     string `json:"code"`     // PyTorch's, a Python expression
	Seed     uint64 `json:"seed"`     // of the initial values
	Shape    []int  `json:"shape"`    // of x; the first is the number of rows
	Training []bool `json:"training"` // of each step
	build    func(nn.Source) nn.Module
}

func layer(code string, shape []int, build func(nn.Source) nn.Module) layerCase {
	return layerCase{Code: code, Shape: append([]int{0}, shape...), Training: []bool{true}, build: build}
}

func imageLayer(code string, in nn.Image, build func(nn.Source) nn.Module) layerCase {
	return layer(code, []int{in.Channels, in.Height, in.Width}, build)
}

// trained has steps whose running statistics count in a later one.
func (c layerCase) trained() layerCase {
	c.Training = []bool{true, true, true, false, true}
	return c
}

// layerCases are the layers for images, linear layers and small networks of them.
func layerCases() []layerCase { return slices.Concat(convCases(), poolCases(), otherCases()) }

func convCases() []layerCase {
	var cases []layerCase
	for channels := 1; channels <= 5; channels++ {
		for _, kernel := range []int{1, 3, 5} {
			for _, stride := range []int{1, 2, 3} {
				for _, padding := range []int{0, 1, 2} {
					in := nn.Image{Channels: channels, Height: 7 + channels%2, Width: 6 + kernel%2 + stride}
					cases = append(cases, convCase(in, nn.Conv2dConfig{Out: 6 - channels, Kernel: kernel, Stride: stride,
						Padding: padding, NoBias: padding == 1 && stride == 2}))
				}
			}
		}
	}
	return append(cases,
		convCase(nn.Image{Channels: 16, Height: 14, Width: 14}, nn.Conv2dConfig{Out: 32, Kernel: 3, Stride: 1, Padding: 1}),
		convCase(nn.Image{Channels: 2, Height: 5, Width: 5}, nn.Conv2dConfig{Out: 3, Kernel: 5, Stride: 1}),
		convCase(nn.Image{Channels: 1, Height: 1, Width: 1}, nn.Conv2dConfig{Out: 1, Kernel: 2, Stride: 2, Padding: 1}))
}

func convCase(in nn.Image, cfg nn.Conv2dConfig) layerCase {
	bias := "True"
	if cfg.NoBias {
		bias = "False"
	}
	code := fmt.Sprintf("nn.Conv2d(%d, %d, %d, stride=%d, padding=%d, bias=%s)",
		in.Channels, cfg.Out, cfg.Kernel, cfg.Stride, cfg.Padding, bias)
	return imageLayer(code, in, func(s nn.Source) nn.Module { return nn.NewConv2d(in, cfg, s) })
}

// poolCases have images whose halves are no, less, and more than the eight results that assembly makes at once.
func poolCases() []layerCase {
	var cases []layerCase
	for _, in := range []nn.Image{{Channels: 3, Height: 8, Width: 6}, {Channels: 2, Height: 9, Width: 7}, {Channels: 1, Height: 4, Width: 34}} {
		for _, w := range [][3]int{{2, 2, 0}, {3, 2, 1}, {2, 1, 0}, {3, 3, 0}, {4, 2, 2}, {1, 2, 0}} {
			args := fmt.Sprintf("(%d, stride=%d, padding=%d)", w[0], w[1], w[2])
			plain := nn.MaxPool2dConfig{Kernel: w[0], Stride: w[1], Padding: w[2]}
			rectified := plain
			rectified.ReLU = true
			mean := nn.AvgPool2dConfig{Kernel: w[0], Stride: w[1], Padding: w[2]}
			cases = append(cases,
				imageLayer("nn.MaxPool2d"+args, in, func(nn.Source) nn.Module { return nn.NewMaxPool2d(in, plain) }),
				imageLayer("nn.Sequential(nn.ReLU(), nn.MaxPool2d"+args+")", in,
					func(nn.Source) nn.Module { return nn.NewMaxPool2d(in, rectified) }),
				imageLayer("nn.AvgPool2d"+args, in, func(nn.Source) nn.Module { return nn.NewAvgPool2d(in, mean) }))
		}
	}
	return cases
}

func otherCases() []layerCase {
	image := nn.Image{Channels: 3, Height: 5, Width: 4}
	plain := nn.CNNConfig{In: nn.Image{Channels: 1, Height: 12, Width: 13}, Channels: []int{4, 6}, Kernel: 3, Classes: 10}
	norm := nn.CNNConfig{In: nn.Image{Channels: 2, Height: 8, Width: 8}, Channels: []int{3}, Kernel: 5, BatchNorm: true,
		Hidden: []int{8}, Classes: 3}
	return []layerCase{
		layer("nn.Linear(7, 5)", []int{7}, func(s nn.Source) nn.Module { return nn.NewLinear(7, 5, s) }),
		layer("nn.Linear(1000, 1)", []int{1000}, func(s nn.Source) nn.Module { return nn.NewLinear(1000, 1, s) }),
		layer("nn.ReLU()", []int{7}, func(nn.Source) nn.Module { return nn.NewReLU() }),
		layer("nn.BatchNorm1d(6)", []int{6}, func(nn.Source) nn.Module { return nn.NewBatchNorm1d(6, nil) }).trained(),
		imageLayer("nn.BatchNorm2d(3)", image, func(nn.Source) nn.Module { return nn.NewBatchNorm2d(image, nil) }).trained(),
		imageLayer(`nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(),
			nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 10))`,
			plain.In, func(s nn.Source) nn.Module { return nn.NewCNN(plain, s) }),
		imageLayer(`nn.Sequential(nn.Conv2d(2, 3, 5, padding=2), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
			nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 3))`,
			norm.In, func(s nn.Source) nn.Module { return nn.NewCNN(norm, s) }).trained(),
	}
}
