package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
)

// errRowsUnknown: the number of rows is known only after reading all of the data.
var errRowsUnknown = errors.New("the headers of the data do not say how many rows it has")

// CountRows returns how many rows the files of a kind of data ("mnist", "cifar10", "npy") have according to their headers, without checking
// anything else of the data. For mnist and npy it looks at the first file.
func CountRows(kind string, paths ...string) (rows int, err error) {
	defer reading(&err, kind)
	if len(paths) == 0 {
		return 0, errRowsUnknown
	}
	switch kind {
	case "mnist":
		dims, err := idxSizes(paths[0])
		if err != nil {
			return 0, err
		}
		return dims[0], nil
	case "npy":
		a, err := openNPY(paths[0])
		if err != nil {
			return 0, err
		}
		return a.rows(), nil
	case "cifar10":
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				return 0, err
			}
			rows += int(info.Size() / cifarRow)
		}
		return rows, nil
	}
	return 0, errRowsUnknown
}

// ImagesSpec returns what the header of MNIST's file of images, or the format of CIFAR-10, says about the rows. ok is false if the header
// cannot be read, or for other kinds of data.
func ImagesSpec(kind, path string) (spec Spec, ok bool) {
	switch kind {
	case "mnist":
		dims, err := idxSizes(path)
		if err != nil || len(dims) != 3 || int64(dims[1])*int64(dims[2]) > maxInputs {
			return spec, false
		}
		image := Image{Channels: 1, Height: dims[1], Width: dims[2]}
		return Spec{Inputs: dims[1] * dims[2], Classes: mnistClasses, Labels: 1, Image: image}, true
	case "cifar10":
		return cifarSpec, true
	}
	return spec, false
}

// idxSizes returns the sizes in the header of an IDX file, plain or gzip.
func idxSizes(path string) ([]int, error) {
	f, _, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buffered := bufio.NewReader(f)
	var r io.Reader = buffered
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if r, err = gzip.NewReader(buffered); err != nil {
			return nil, err
		}
	}
	dims, _, err := readIDXHeader(r)
	return dims, err
}
