package data

import (
	"context"
	"errors"
	"fmt"
)

// The number of MNIST's classes, and the mean and standard deviation of its training pixels after
// scaling to [0, 1], which PyTorch's examples also use to normalize.
const (
	mnistClasses = 10
	mnistMean    = 0.1307
	mnistStd     = 0.3081
)

// LoadMNIST opens handwritten digits in two IDX files, plain or gzip: images
// [rows, height, width] and labels [rows] from 0 to 9. A row's inputs are its pixels
// in order, at most 4096 x 4096, normalized to (pixel/255 - 0.1307) / 0.3081.
// Plain files are mapped; gzip is unpacked, once a node if there is a cache.
func LoadMNIST(ctx context.Context, cache *Cache, images, labels string) (Dataset, error) {
	x, err := openMNIST(ctx, cache, images, "images", 3)
	if err != nil {
		return nil, err
	}
	y, err := openMNIST(ctx, cache, labels, "labels", 1)
	if err != nil {
		return nil, err
	}
	if x.dims[0] != y.dims[0] {
		return nil, fmt.Errorf("%s holds %d images and %s %d labels: they do not belong together", images, x.dims[0], labels, y.dims[0])
	}
	size := x.dims[1] * x.dims[2]
	if size > maxInputs {
		return nil, fmt.Errorf("read mnist images: %s: %d x %d pixels are more than %d for a row", images, x.dims[1], x.dims[2], maxInputs)
	}
	classes, err := byteLabels(y.data, 1, mnistClasses)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", labels, err)
	}
	return &table{
		spec: Spec{
			Inputs: size, Classes: mnistClasses, Labels: 1,
			Image: Image{Channels: 1, Height: x.dims[1], Width: x.dims[2]},
		},
		rows:   x.dims[0],
		x:      pixels{bytes: x.data, stride: size, columns: size, values: [][256]float32{normalized(mnistMean, mnistStd)}},
		labels: classes,
		files:  []*mapping{x.file, y.file},
	}, nil
}

// byteLabels returns the labels of rows of stride bytes, each row's first byte. They must be below classes.
func byteLabels(rows []byte, stride, classes int) ([]int32, error) {
	labels := make([]int32, len(rows)/stride)
	for i := range labels {
		labels[i] = int32(rows[i*stride])
		if int(labels[i]) >= classes {
			return nil, fmt.Errorf("label %d of row %d is out of range, want 0 to %d", labels[i], i, classes-1)
		}
	}
	return labels, nil
}

// openMNIST opens an IDX file that must have the given number of dimensions.
func openMNIST(ctx context.Context, cache *Cache, path, what string, dims int) (*idx, error) {
	x, err := openIDX(ctx, cache, path)
	if err != nil {
		return nil, fmt.Errorf("read mnist %s: %w", what, err)
	}
	if len(x.dims) != dims {
		return nil, fmt.Errorf("read mnist %s: %s has the wrong magic number: it holds %d dimensions, but %s have %d; are "+
			"images and labels swapped?",
			what, path, len(x.dims), what, dims)
	}
	return x, nil
}

// The shape of the pictures of CIFAR-10, and of the rows of its binary files
// (https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version"): a label, then 32 x 32 bytes each of red, green and blue.
const (
	cifarClasses  = 10
	cifarSide     = 32
	cifarChannels = 3
	cifarInputs   = cifarChannels * cifarSide * cifarSide
	cifarRow      = 1 + cifarInputs
)

// The mean and standard deviation of each channel over all training pixels, after scaling to [0, 1].
// (Examples with deviations near 0.20 use the mean of the deviations of single pictures instead.)
var (
	cifarMean = [cifarChannels]float32{0.4914, 0.4822, 0.4465}
	cifarStd  = [cifarChannels]float32{0.2470, 0.2435, 0.2616}
)

var cifarSpec = Spec{Inputs: cifarInputs, Classes: cifarClasses, Labels: 1, Image: Image{cifarChannels, cifarSide, cifarSide}}

// LoadCIFAR10 opens files of CIFAR-10's binary version, such as data_batch_1.bin to data_batch_5.bin. Their rows
// follow each other in the order of the paths. A row's inputs are (pixel/255 - mean) / deviation with the mean and deviation of each
// channel. The files are mapped.
func LoadCIFAR10(paths ...string) (_ Dataset, err error) {
	defer reading(&err, "cifar10")
	if len(paths) == 0 {
		return nil, errors.New("no file is named")
	}
	values := make([][256]float32, cifarChannels)
	for c := range values {
		values[c] = normalized(cifarMean[c], cifarStd[c])
	}
	var parts []*table
	for _, path := range paths {
		m, err := openMapping(path)
		if err != nil {
			return nil, err
		}
		part, err := parseCIFAR10(m.bytes, values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		part.files = []*mapping{m}
		parts = append(parts, part)
	}
	return newConcat(parts), nil
}

// parseCIFAR10 returns a view of the rows in a file.
func parseCIFAR10(file []byte, values [][256]float32) (*table, error) {
	if len(file) == 0 || len(file)%cifarRow != 0 {
		return nil, fmt.Errorf("%d bytes are not rows of %d: it is cut short, or not CIFAR-10's binary version", len(file), cifarRow)
	}
	labels, err := byteLabels(file, cifarRow, cifarClasses)
	if err != nil {
		return nil, err
	}
	return &table{
		spec:   cifarSpec,
		rows:   len(labels),
		x:      pixels{bytes: file, offset: 1, stride: cifarRow, columns: cifarInputs, values: values},
		labels: labels,
	}, nil
}
