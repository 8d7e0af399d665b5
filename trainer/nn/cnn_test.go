package nn

import (
	"math"
	"strings"
	"testing"
)

// The configuration of the project's benchmark; the number is PyTorch's, 16 (9 + 1) + 32 (144 + 1) + 10 (1568 + 1).
func TestCNNParameters(t *testing.T) {
	model := NewCNN(CNNConfig{In: Image{1, 28, 28}, Channels: []int{16, 32}, Kernel: 3, Classes: 10}, source())
	count := 0
	for _, p := range model.Params() {
		count += len(p.Value)
	}
	if count != 20_490 {
		t.Errorf("%d parameters, want 20,490", count)
	}
}

func TestCNNValidate(t *testing.T) {
	good := CNNConfig{In: Image{1, 28, 28}, Channels: []int{4, 4, 4, 4}, Kernel: 3, Hidden: []int{5}, Dropout: 0.5, Classes: 10}
	for _, c := range []struct {
		change func(*CNNConfig)
		want   string // in the error; empty: none
	}{
		{func(*CNNConfig) {}, ""},
		{func(c *CNNConfig) { c.Channels = nil; c.Kernel = 0 }, ""},
		{func(c *CNNConfig) { c.In.Channels = 0 }, "0 x 28 x 28"},
		{func(c *CNNConfig) { c.Kernel = 0 }, "kernel is 0"},
		{func(c *CNNConfig) { c.Channels = []int{4, 0} }, "stage 2"},
		{func(c *CNNConfig) { c.Channels = []int{1, 1, 1, 1, 1} }, "stage 5 halves an image of 1 x 1"},
		{func(c *CNNConfig) { c.In.Width = 15 }, "stage 4 halves an image of 3 x 1"},
		{func(c *CNNConfig) { c.In.Width = 15; c.Kernel = 2 }, ""},
		{func(c *CNNConfig) { c.Hidden = []int{0} }, "hidden layer 1"},
		{func(c *CNNConfig) { c.Classes = 0 }, "0 classes"},
		{func(c *CNNConfig) { c.Dropout = 1 }, "dropout is 1"},
		{func(c *CNNConfig) { c.Dropout = math.NaN() }, "dropout is NaN"},
	} {
		cfg := good
		c.change(&cfg)
		err := cfg.Validate()
		if c.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", cfg, err)
				continue
			}
			x := NewMatrix(1, cfg.In.Size())
			if y := NewCNN(cfg, source()).Forward(new(Pass), x); y.Cols != cfg.Classes {
				t.Errorf("%+v: %d outputs, want %d", cfg, y.Cols, cfg.Classes)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, want one with %q", cfg, err, c.want)
		}
	}
}

func TestImageMisfitsPanic(t *testing.T) {
	r := source()
	wrong := NewMatrix(2, small.Size()+1)
	for name, f := range map[string]func(){
		"no output channel":      func() { NewConv2d(small, Conv2dConfig{Kernel: 3}, r) },
		"no kernel":              func() { NewConv2d(small, Conv2dConfig{Out: 1}, r) },
		"kernel too large":       func() { NewConv2d(small, Conv2dConfig{Out: 1, Kernel: 5}, r) },
		"no image":               func() { NewConv2d(Image{1, 0, 3}, Conv2dConfig{Out: 1, Kernel: 1, Padding: 1}, r) },
		"convolution's width":    func() { NewConv2d(small, Conv2dConfig{Out: 1, Kernel: 1}, r).Forward(new(Pass), wrong) },
		"padding of a max pool":  func() { NewMaxPool2d(small, MaxPool2dConfig{Kernel: 2, Padding: 2}) },
		"huge max pool":          func() { NewMaxPool2d(Image{1, 99, 99}, MaxPool2dConfig{Kernel: 16}) },
		"max pool's width":       func() { NewMaxPool2d(small, MaxPool2dConfig{Kernel: 2}).Forward(new(Pass), wrong) },
		"padding of an avg pool": func() { NewAvgPool2d(small, AvgPool2dConfig{Kernel: 2, Padding: 2}) },
		"avg pool's width":       func() { NewAvgPool2d(small, AvgPool2dConfig{Kernel: 2}).Forward(new(Pass), wrong) },
		"batch norm's width":     func() { NewBatchNorm2d(small, nil).Forward(new(Pass), wrong) },
		"dropout above 1":        func() { NewDropout(1.5, 0) },
		"dropout of NaN":         func() { NewDropout(math.NaN(), 0) },
		"cnn":                    func() { NewCNN(CNNConfig{}, r) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
