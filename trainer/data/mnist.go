package data

import (
	"context"
	"fmt"
)

// Digits of MNIST, and the mean and standard deviation of its training pixels after
// scaling to [0, 1], which PyTorch's examples normalize with too.
const (
	mnistClasses = 10
	mnistMean    = 0.1307
	mnistStd     = 0.3081
)

// LoadMNIST opens handwritten digits in two IDX files, plain or gzip: images
// [rows, height, width] and labels [rows] in 0..9. A row's inputs are its pixels
// in order, at most 4096 x 4096, (pixel/255 - 0.1307) / 0.3081. Plain files are mapped; gzip is unpacked, once a node where there is a cache.
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

// byteLabels are the labels of rows of stride bytes, each row's first byte, which must be below classes.
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

// openMNIST reads an IDX file that must have dims dimensions.
func openMNIST(ctx context.Context, cache *Cache, path, what string, dims int) (*idx, error) {
	x, err := openIDX(ctx, cache, path)
	if err != nil {
		return nil, fmt.Errorf("read mnist %s: %w", what, err)
	}
	if len(x.dims) != dims {
		return nil, fmt.Errorf("read mnist %s: %s has the wrong magic number: it holds %d dimensions where %s have %d; are images and labels swapped?",
			what, path, len(x.dims), what, dims)
	}
	return x, nil
}
