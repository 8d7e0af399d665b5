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
		return countIDX(paths[0])
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

// countIDX returns the first size in the header of an IDX file, plain or gzip.
func countIDX(path string) (int, error) {
	f, _, err := openRegular(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buffered := bufio.NewReader(f)
	var r io.Reader = buffered
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if r, err = gzip.NewReader(buffered); err != nil {
			return 0, err
		}
	}
	dims, _, err := readIDXHeader(r)
	if err != nil {
		return 0, err
	}
	return dims[0], nil
}
