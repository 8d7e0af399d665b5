package data

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
)

// Limits of an IDX file. The largest one in common use, EMNIST's by class, has 522 MiB.
const (
	maxIDXBytes = 1 << 30
	maxIDXDims  = 8

	// maxInflation is the largest expansion factor of deflate: a match of 258 bytes takes two bits
	// (RFC 1951, 3.2.5).
	maxInflation = 1032
)

// unsignedByte is the code of the only supported element type.
const unsignedByte = 0x08

// idx is an array of bytes in the format of the MNIST files
// (http://yann.lecun.com/exdb/mnist, "the IDX file format").
type idx struct {
	dims []int    // at least one; the product is len(data)
	data []byte   // row-major
	file *mapping // the mapping that holds data, if any
}

// openIDX opens the file at path. It maps a plain file, and unpacks gzip, into the cache if there
// is one.
func openIDX(ctx context.Context, cache *Cache, path string) (*idx, error) {
	m, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	var x *idx
	if bytes.HasPrefix(m.bytes, []byte{0x1f, 0x8b}) {
		x, err = unpackIDX(ctx, cache, path)
	} else {
		x, err = parseIDX(m.bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if x.file == nil {
		x.file = m
	}
	return x, nil
}

// parseIDX returns the array in a plain file, as a view of it.
func parseIDX(file []byte) (*idx, error) {
	r := bytes.NewReader(file)
	dims, size, err := readIDXHeader(r)
	if err != nil {
		return nil, err
	}
	data := file[len(file)-r.Len():]
	if err := checkIDXSize(int64(len(data)), size, dims); err != nil {
		return nil, err
	}
	return &idx{dims: dims, data: data}, nil
}

func checkIDXSize(have, want int64, dims []int) error {
	if have < want {
		return fmt.Errorf("cut short: %d bytes of data, but the header %v promises %d; copy the file again", have, dims, want)
	}
	if have > want {
		return fmt.Errorf("data goes on after the %d bytes that the header %v promises", want, dims)
	}
	return nil
}

// unpackIDX returns the array in a gzip file.
func unpackIDX(ctx context.Context, cache *Cache, path string) (*idx, error) {
	look := func() (source, error) { return fileSource(path, "idx") }
	p, err := cache.load(ctx, look, func() (*prepared, error) {
		// A mapping from before look could be of a file that has been replaced since.
		m, err := openMapping(path)
		if err != nil {
			return nil, err
		}
		x, err := readIDX(m.bytes)
		runtime.KeepAlive(m)
		if err != nil {
			return nil, err
		}
		return &prepared{Arrays: []array{{kindBytes, x.dims, x.data}}}, nil
	})
	if err != nil {
		return nil, err
	}
	if len(p.Arrays) != 1 || p.Arrays[0].kind != kindBytes || len(p.Arrays[0].dims) == 0 {
		return nil, errStale
	}
	return &idx{p.Arrays[0].dims, p.Arrays[0].bytes, p.file}, nil
}

// readIDX unpacks the array in a gzip file. It allocates the memory that the header promises, up to 1 GiB, but no more
// than deflate could expand a file of that size to, so a false header costs no more than a true one could.
func readIDX(file []byte) (*idx, error) {
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	dims, size, err := readIDXHeader(z)
	if err != nil {
		return nil, err
	}
	data := make([]byte, min(size, maxInflation*int64(len(file))))
	have, err := io.ReadFull(z, data)
	if err == nil {
		// The read of one more byte finds the end, and also checks gzip's checksum.
		var more int
		more, err = io.ReadFull(z, make([]byte, 1))
		have += more
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("damaged after %d bytes of data: %w", have, err)
	}
	if damage := checkIDXSize(int64(have), size, dims); damage != nil {
		return nil, damage
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("damaged at the end: %w", err)
	}
	return &idx{dims: dims, data: data}, nil
}

// readIDXHeader parses the magic number, 0 0 TYPE NDIM, and NDIM big-endian sizes.
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
