package data

import (
	"errors"
	"fmt"
)

// Shape of the pictures of CIFAR-10, and of the rows of its binary files
// (https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version"): a label, then 32 x 32 bytes each of red, green, blue.
const (
	cifarClasses  = 10
	cifarSide     = 32
	cifarChannels = 3
	cifarInputs   = cifarChannels * cifarSide * cifarSide
	cifarRow      = 1 + cifarInputs
)

// Mean and standard deviation over all training pixels of each channel, after scaling to [0, 1].
// (Examples with deviations near 0.20 average those of single pictures instead.)
var (
	cifarMean = [cifarChannels]float32{0.4914, 0.4822, 0.4465}
	cifarStd  = [cifarChannels]float32{0.2470, 0.2435, 0.2616}
)

// LoadCIFAR10 opens files of CIFAR-10's binary version, such as data_batch_1.bin to data_batch_5.bin, whose rows
// follow each other in the order of the paths. A row's inputs are (pixel/255 - mean) / deviation of each
// channel. The files are mapped.
func LoadCIFAR10(paths ...string) (Dataset, error) {
	if len(paths) == 0 {
		return nil, errors.New("read cifar10: no file is named")
	}
	values := make([][256]float32, cifarChannels)
	for c := range values {
		values[c] = normalized(cifarMean[c], cifarStd[c])
	}
	var parts []*table
	for _, path := range paths {
		m, err := openMapping(path)
		if err != nil {
			return nil, fmt.Errorf("read cifar10: %w", err)
		}
		part, err := parseCIFAR10(m.bytes, values)
		if err != nil {
			return nil, fmt.Errorf("read cifar10: %s: %w", path, err)
		}
		part.files = []*mapping{m}
		parts = append(parts, part)
	}
	return newConcat(parts), nil
}

// parseCIFAR10 is a view of the rows in a file.
func parseCIFAR10(file []byte, values [][256]float32) (*table, error) {
	if len(file) == 0 || len(file)%cifarRow != 0 {
		return nil, fmt.Errorf("%d bytes are not rows of %d: it is cut short, or not CIFAR-10's binary version", len(file), cifarRow)
	}
	labels, err := byteLabels(file, cifarRow, cifarClasses)
	if err != nil {
		return nil, err
	}
	return &table{
		spec: Spec{
			Inputs: cifarInputs, Classes: cifarClasses, Labels: 1,
			Image: Image{cifarChannels, cifarSide, cifarSide},
		},
		rows:   len(labels),
		x:      pixels{bytes: file, offset: 1, stride: cifarRow, columns: cifarInputs, values: values},
		labels: labels,
	}, nil
}
