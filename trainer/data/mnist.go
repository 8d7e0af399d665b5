package data

import "fmt"

// Digits of MNIST, and the mean and standard deviation of its training pixels after
// scaling to [0, 1], which PyTorch's examples normalize with too.
const (
	mnistClasses = 10
	mnistMean    = 0.1307
	mnistStd     = 0.3081
)

// mnist keeps the pixels as bytes and normalizes what is read.
type mnist struct {
	pixels  []byte
	labels  []byte
	columns int
	value   [256]float32 // of each pixel
}

// LoadMNIST reads handwritten digits from two IDX files, plain or gzip: images
// [rows, height, width] and labels [rows] in 0..9. A row's inputs are its pixels
// in order, (pixel/255 - 0.1307) / 0.3081 computed in float32 as
// torchvision's ToTensor and Normalize do.
func LoadMNIST(images, labels string) (Dataset, error) {
	x, err := openMNIST(images, "images", 3)
	if err != nil {
		return nil, err
	}
	y, err := openMNIST(labels, "labels", 1)
	if err != nil {
		return nil, err
	}
	if x.Dims[0] != y.Dims[0] {
		return nil, fmt.Errorf("%s holds %d images and %s %d labels: they do not belong together", images, x.Dims[0], labels, y.Dims[0])
	}
	for i, label := range y.Data {
		if label >= mnistClasses {
			return nil, fmt.Errorf("%s: label %d of row %d is out of range, want 0 to %d", labels, label, i, mnistClasses-1)
		}
	}
	d := &mnist{pixels: x.Data, labels: y.Data, columns: x.Dims[1] * x.Dims[2]}
	for i := range d.value {
		d.value[i] = (float32(float32(i)/255) - mnistMean) / mnistStd
	}
	return d, nil
}

// openMNIST reads an IDX file that must have dims dimensions.
func openMNIST(path, what string, dims int) (*IDX, error) {
	idx, err := OpenIDX(path)
	if err != nil {
		return nil, fmt.Errorf("read mnist %s: %w", what, err)
	}
	if len(idx.Dims) != dims {
		return nil, fmt.Errorf("read mnist %s: %s has the wrong magic number: it holds %d dimensions where %s have %d; are images and labels swapped?",
			what, path, len(idx.Dims), what, dims)
	}
	return idx, nil
}

func (d *mnist) Len() int { return len(d.labels) }

func (d *mnist) Spec() Spec { return Spec{Inputs: d.columns, Classes: mnistClasses} }

func (d *mnist) Read(i int, x, _ []float32) int {
	for j, pixel := range d.pixels[i*d.columns : (i+1)*d.columns] {
		x[j] = d.value[pixel]
	}
	return int(d.labels[i])
}
