package data

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Limits of an IDX file. The largest one in common use, EMNIST's by class, has 522 MiB.
const (
	maxIDXBytes = 1 << 30
	maxIDXDims  = 8
)

// unsignedByte is the code of the only element type that is read.
const unsignedByte = 0x08

// IDX is an array of bytes in the format of the MNIST files
// (http://yann.lecun.com/exdb/mnist, "the IDX file format").
type IDX struct {
	Dims []int  // at least one; the product is len(Data)
	Data []byte // row-major
}

// OpenIDX reads the file at path, plain or gzip.
func OpenIDX(path string) (*IDX, error) {
	// A pipe would be waited for, already by Open; a folder gives a bare EISDIR.
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	idx, err := ReadIDX(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return idx, nil
}

// ReadIDX reads one array from r up to its end. Whether r is compressed is seen from its
// first two bytes. Memory grows with what r really holds, up to 1 GiB.
func ReadIDX(r io.Reader) (*IDX, error) {
	plain := bufio.NewReader(r)
	if start, err := plain.Peek(2); err != nil || start[0] != 0x1f || start[1] != 0x8b {
		return readIDX(plain)
	}
	z, err := gzip.NewReader(plain)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return readIDX(z)
}

func readIDX(r io.Reader) (*IDX, error) {
	dims, size, err := readIDXHeader(r)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("damaged after %d bytes of data: %w", len(data), err)
	}
	if int64(len(data)) < size {
		return nil, fmt.Errorf("cut short: %d bytes of data where the header %v promises %d; copy the file again", len(data), dims, size)
	}
	// The read that finds the end is also the one that checks gzip's sum.
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n != 0:
		return nil, fmt.Errorf("data goes on after the %d bytes that the header %v promises", size, dims)
	case err != io.EOF:
		return nil, fmt.Errorf("damaged at the end: %w", err)
	}
	return &IDX{Dims: dims, Data: data}, nil
}

// readIDXHeader reads the magic number, 0 0 TYPE NDIM, and NDIM big-endian sizes.
func readIDXHeader(r io.Reader) (dims []int, size int64, err error) {
	var magic [4]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return nil, 0, fmt.Errorf("not an IDX file: no magic number: %w", err)
	}
	count := int(magic[3])
	if magic[0] != 0 || magic[1] != 0 || count == 0 || count > maxIDXDims {
		return nil, 0, fmt.Errorf("not an IDX file: it begins with the bytes % x", magic)
	}
	if magic[2] != unsignedByte {
		return nil, 0, fmt.Errorf("elements of IDX type 0x%02x are not supported, only unsigned bytes (0x08)", magic[2])
	}
	size = 1
	for range count {
		var word [4]byte
		if _, err := io.ReadFull(r, word[:]); err != nil {
			return nil, 0, fmt.Errorf("cut short in the header: %w", err)
		}
		n := int64(binary.BigEndian.Uint32(word[:]))
		if n == 0 {
			return nil, 0, errors.New("the header has a dimension of 0: there is no data")
		}
		if n > maxIDXBytes/size {
			return nil, 0, fmt.Errorf("the header promises more than the %d MiB that are accepted", maxIDXBytes>>20)
		}
		size *= n
		dims = append(dims, int(n))
	}
	return dims, size, nil
}
