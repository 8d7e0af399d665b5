package nn

import (
	"fmt"
	"slices"
	"strconv"
)

// CNNConfig is the shape of a convolutional network.
type CNNConfig struct {
	In        Image
	Channels  []int   // for each stage: of a convolution, which ReLU and 2 x 2 max-pooling follow
	Kernel    int     // of the convolutions; with an odd kernel they keep the image's size
	BatchNorm bool    // between convolution and ReLU
	Reducer   Reducer // for batch normalization over ranks; nil: each rank's own batch
	Hidden    []int   // widths of dense layers with ReLU after the stages
	Dropout   float64 // before every dense layer; 0: none
	Classes   int
}

// Validate returns an error that describes the first fault of a configuration.
func (c CNNConfig) Validate() error {
	in := c.In
	if in.Channels < 1 || in.Height < 1 || in.Width < 1 {
		return fmt.Errorf("cnn: images of %d x %d x %d (channels, height, width): all must be at least 1", in.Channels, in.Height, in.Width)
	}
	if len(c.Channels) > 0 && c.Kernel < 1 {
		return fmt.Errorf("cnn: kernel is %d: it must be at least 1, and is usually 3 or 5", c.Kernel)
	}
	height, width := in.Height, in.Width
	for i, channels := range c.Channels {
		if channels < 1 {
			return fmt.Errorf("cnn: stage %d has %d channels: it needs at least 1", i+1, channels)
		}
		grown := (c.Kernel + 1) % 2 // an even kernel adds a row and a column
		if min(height, width)+grown < 2 {
			return fmt.Errorf("cnn: stage %d halves an image of %d x %d, but needs at least 2 x 2: use fewer stages, or larger images",
				i+1, height+grown, width+grown)
		}
		height, width = (height+grown)/2, (width+grown)/2
	}
	for i, n := range c.Hidden {
		if n < 1 {
			return fmt.Errorf("cnn: hidden layer %d has width %d: it needs at least 1", i+1, n)
		}
	}
	if c.Classes < 1 {
		return fmt.Errorf("cnn: %d classes: it needs at least 1", c.Classes)
	}
	if !(c.Dropout >= 0 && c.Dropout < 1) {
		return fmt.Errorf("cnn: dropout is %g: it must be at least 0 and below 1", c.Dropout)
	}
	return nil
}

// NewCNN returns stages of convolutions and a head of dense layers. Its parameters have the names of this torch.nn.Sequential, in which
// modules without parameters are numbered, too:
//
//	Conv2d(in, out, Kernel, padding=Kernel//2), [BatchNorm2d(out),] ReLU(), MaxPool2d(2)    for each of Channels
//	Flatten()
//	[Dropout(Dropout),] Linear(in, out), ReLU()                                             for each of Hidden
//	[Dropout(Dropout),] Linear(in, Classes)
//
// Here ReLU and pooling are one module, and images are flat already. NewCNN panics if Validate returns an error.
func NewCNN(cfg CNNConfig, src Source) *Sequential {
	if cfg.Validate() != nil {
		panic("nn: the configuration of a CNN is not valid")
	}
	b := cnnBuilder{image: cfg.In}
	for _, channels := range cfg.Channels {
		conv := NewConv2d(b.image, Conv2dConfig{Out: channels, Kernel: cfg.Kernel, Padding: cfg.Kernel / 2}, src)
		b.image = conv.Out()
		b.add(conv, 1)
		if cfg.BatchNorm {
			b.add(NewBatchNorm2d(b.image, cfg.Reducer), 1)
		}
		pool := NewMaxPool2d(b.image, MaxPool2dConfig{Kernel: 2, ReLU: true})
		b.image = pool.Out()
		b.add(pool, 2)
	}
	b.index++ // Flatten
	width := b.image.Size()
	for i, out := range slices.Concat(cfg.Hidden, []int{cfg.Classes}) {
		if cfg.Dropout > 0 {
			b.add(NewDropout(cfg.Dropout, uint64(i)), 1)
		}
		b.add(NewLinear(width, out, src), 1)
		if i < len(cfg.Hidden) {
			b.add(NewReLU(), 1)
		}
		width = out
	}
	return NewNamed(b.children...)
}

// cnnBuilder numbers modules as PyTorch does.
type cnnBuilder struct {
	image    Image // the output of the last stage
	index    int
	children []Child
}

// add appends a module that stands for the given number of PyTorch's modules.
func (b *cnnBuilder) add(m Module, entries int) {
	b.children = append(b.children, Child{strconv.Itoa(b.index), m})
	b.index += entries
}
