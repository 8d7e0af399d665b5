package nn

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"ddpbatch/trainer/blas"
)

// The CNN of the project's benchmark has as many parameters as in PyTorch: 16 (9 + 1) + 32 (144 + 1) + 10 (1568 + 1).
func TestCNNHasPyTorchsParameters(t *testing.T) {
	model := NewCNN(CNNConfig{In: Image{1, 28, 28}, Channels: []int{16, 32}, Kernel: 3, Classes: 10}, source())
	count := 0
	for _, p := range model.Params() {
		count += len(p.Value)
	}
	if count != 20_490 {
		t.Errorf("%d parameters, want 20,490", count)
	}
}

func TestCNNConfigIsChecked(t *testing.T) {
	good := CNNConfig{In: Image{1, 28, 28}, Channels: []int{4, 4, 4, 4}, Kernel: 3, Hidden: []int{5}, Dropout: 0.5, Classes: 10}
	for _, c := range []struct {
		change func(*CNNConfig)
		want   string // part of the error; empty: no error
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

var small = Image{Channels: 2, Height: 4, Width: 6}

// imageModules returns functions that build modules for images of small's size, by name.
func imageModules() map[string]func(Source) Module {
	return map[string]func(Source) Module{
		"conv2d": func(s Source) Module { return NewConv2d(small, Conv2dConfig{Out: 3, Kernel: 3, Padding: 1}, s) },
		"conv2d with stride, without bias": func(s Source) Module {
			return NewConv2d(small, Conv2dConfig{Out: 2, Kernel: 3, Stride: 2, Padding: 2, NoBias: true}, s)
		},
		"max pool":       func(Source) Module { return NewMaxPool2d(small, MaxPool2dConfig{Kernel: 2}) },
		"max pool, ReLU": func(Source) Module { return NewMaxPool2d(small, MaxPool2dConfig{Kernel: 2, ReLU: true}) },
		"max pool, overlapping": func(Source) Module {
			return NewMaxPool2d(small, MaxPool2dConfig{Kernel: 3, Stride: 1, Padding: 1, ReLU: true})
		},
		"average pool": func(Source) Module { return NewAvgPool2d(small, AvgPool2dConfig{Kernel: 3, Stride: 2, Padding: 1}) },
		"batch norm":   func(Source) Module { return NewBatchNorm2d(small, nil) },
		"batch norm 1d": func(Source) Module {
			return NewBatchNorm1d(small.Size(), nil)
		},
		"dropout": func(Source) Module { return NewDropout(0.3, 1) },
		"cnn": func(s Source) Module {
			return NewCNN(CNNConfig{In: small, Channels: []int{3}, Kernel: 3, BatchNorm: true, Dropout: 0.2, Hidden: []int{5}, Classes: 4},
				s)
		},
	}
}

// apart returns values at least 1/16 apart and at least 1/32 from 0. Both distances are larger than h, so that no step of h changes which
// value is the largest.
func apart(r *rand.Rand, rows, cols int) Matrix {
	m := NewMatrix(rows, cols)
	for i, j := range r.Perm(len(m.Data)) {
		m.Data[i] = (float32(j-len(m.Data)/2) + 0.5) / 16
	}
	return m
}

func TestImageModuleGradientsAreDifferences(t *testing.T) {
	for name, build := range imageModules() {
		if name == "cnn" {
			continue // it has kinks at every unit: layers_torch_test.go compares it with PyTorch
		}
		t.Run(name, func(t *testing.T) {
			r := source()
			module := build(r)
			pass := Pass{Training: true, Seed: 1}
			x := apart(r, 3, small.Size())
			y := module.Forward(&pass, x)
			dy := randomMatrix(r, y.Rows, y.Cols)
			f := func() float64 {
				var sum float64
				for i, v := range module.Forward(&pass, x).Data {
					sum += float64(v) * float64(dy.Data[i])
				}
				return sum
			}
			dx := module.Backward(&pass, dy, true)
			checkGradient(t, "input", x.Data, append([]float32(nil), dx.Data...), f)
			for _, p := range module.Params() {
				checkGradient(t, p.Name, p.Value, p.Grad, f)
			}
		})
	}
}

// Modules accept an empty batch, with every library. A rank without rows left takes part in a step with an empty batch.
func TestEmptyBatchesPassThrough(t *testing.T) {
	lib, info, err := blas.Open(blas.Config{Library: blas.Auto})
	if err != nil {
		t.Fatal(err)
	}
	for _, pass := range []*Pass{{Training: true}, {Training: true, BLAS: lib}, {}} {
		for name, build := range imageModules() {
			module := build(source())
			ready := 0
			pass.Ready = func(*Param) { ready++ }
			y := module.Forward(pass, NewMatrix(0, small.Size()))
			dx := module.Backward(pass, NewMatrix(0, y.Cols), true)
			if y.Rows != 0 || y.Cols == 0 || dx.Rows != 0 || dx.Cols != small.Size() {
				t.Errorf("%s with %s: y is %d x %d, dx %d x %d", name, info.Name, y.Rows, y.Cols, dx.Rows, dx.Cols)
			}
			if ready != len(module.Params()) {
				t.Errorf("%s with %s: %d parameters are ready, want %d", name, info.Name, ready, len(module.Params()))
			}
			for _, p := range module.Params() {
				for _, g := range p.Grad {
					if g != 0 {
						t.Errorf("%s with %s: a gradient of %s is %g, want 0", name, info.Name, p.Name, g)
					}
				}
			}
		}
	}
}

func TestImageModulesAllocateNothing(t *testing.T) {
	for name, build := range imageModules() {
		r := source()
		module := build(r)
		pass := Pass{Training: true}
		x := randomMatrix(r, 8, small.Size())
		dy := randomMatrix(r, 8, module.Forward(&pass, x).Cols)
		step := func(rows int) {
			module.Forward(&pass, Matrix{Rows: rows, Cols: x.Cols, Data: x.Data[:rows*x.Cols]})
			module.Backward(&pass, Matrix{Rows: rows, Cols: dy.Cols, Data: dy.Data[:rows*dy.Cols]}, true)
		}
		step(8)
		if n := testing.AllocsPerRun(100, func() { step(8); step(3); step(0) }); n != 0 {
			t.Errorf("%s: a step allocates %v times, want none", name, n)
		}
	}
}

// Gradients accumulate, and nothing of one batch is left over in the next, smaller batch.
func TestImageModulesForgetTheLastBatch(t *testing.T) {
	for name, build := range imageModules() {
		r := source()
		pass := Pass{Seed: 1}
		x, few := randomMatrix(r, 8, small.Size()), randomMatrix(r, 2, small.Size())
		used, fresh := build(source()), build(source())
		dy := randomMatrix(r, 8, used.Forward(&pass, x).Cols)
		fewDY := Matrix{Rows: 2, Cols: dy.Cols, Data: dy.Data[:2*dy.Cols]}
		used.Backward(&pass, dy, true)
		ZeroGrad(used.Params())
		sameFloats(t, name+": output", used.Forward(&pass, few).Data, fresh.Forward(&pass, few).Data)
		sameFloats(t, name+": input gradient", used.Backward(&pass, fewDY, true).Data, fresh.Backward(&pass, fewDY, true).Data)
		for i, p := range used.Params() {
			sameFloats(t, name+": "+p.Name, p.Grad, fresh.Params()[i].Grad)
			once := append([]float32(nil), p.Grad...)
			for j := range once {
				once[j] *= 2
			}
			fresh.Params()[i].Grad = once
		}
		used.Forward(&pass, few)
		used.Backward(&pass, fewDY, false)
		for i, p := range used.Params() {
			sameFloats(t, name+": twice "+p.Name, p.Grad, fresh.Params()[i].Grad)
		}
	}
}

// BenchmarkCNN runs the CNN of the project's benchmark, 20,490 parameters, without an optimizer, and the same CNN with batch normalization.
func BenchmarkCNN(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkCNN(b, false) })
	b.Run("batch norm", func(b *testing.B) { benchmarkCNN(b, true) })
}

func benchmarkCNN(b *testing.B, norm bool) {
	const rows = 64
	lib, info, err := blas.Open(blas.Config{Library: blas.Auto, Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Log(info.Name, info.Version)
	r := source()
	model := NewCNN(CNNConfig{In: Image{1, 28, 28}, Channels: []int{16, 32}, Kernel: 3, BatchNorm: norm, Classes: 10}, r)
	var loss CrossEntropy
	pass := Pass{Training: true, BLAS: lib}
	x, labels := randomMatrix(r, rows, 28*28), make([]int, rows)
	b.ReportAllocs()
	for b.Loop() {
		ZeroGrad(model.Params())
		_, dy := loss.Loss(model.Forward(&pass, x), labels)
		model.Backward(&pass, dy, false)
	}
	b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}
