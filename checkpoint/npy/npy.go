package npy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// WriteFile writes a tensor to a file, whole and durably, or leaves the file as it was. data writes the tensor's bytes in pieces of whole
// elements, so that they need not be in memory all at once. WriteFile checks ctx between writes.
func WriteFile(ctx context.Context, path, dtype string, shape []int, data func(w io.Writer) error) error {
	err := replace.File(ctx, vfs.OS{}, path, func(w io.Writer) error { return write(w, dtype, shape, data) })
	if err != nil {
		return fmt.Errorf("write npy: %w", err)
	}
	return nil
}

func write(w io.Writer, dtype string, shape []int, data func(w io.Writer) error) error {
	header, size, err := makeHeader(dtype, shape)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	counted := &counter{w: values(w, dtype)}
	if err := data(counted); err != nil {
		return err
	}
	if counted.n != size {
		return errLength
	}
	return nil
}

var errLength = errors.New("its data has another length than its shape and dtype take")

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// descriptions are NumPy's names of the types: byte order, kind, bytes. '|' stands for types without a byte order.
var descriptions = map[string]string{
	"bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
	"int64": "<i8", "uint64": "<u8", "float16": "<f2", "bfloat16": "<f4", "float32": "<f4", "float64": "<f8",
	"complex64": "<c8",
}

// makeHeader returns a file up to its elements, for a tensor whose data is then written through values.
// size is the number of the tensor's bytes.
func makeHeader(dtype string, shape []int) (header []byte, size int64, err error) {
	description, known := descriptions[dtype]
	if !known {
		return nil, 0, fmt.Errorf("NumPy has no type for dtype %q; export it to a safetensors file", dtype)
	}
	if size, err = byteSize(dtype, shape); err != nil {
		return nil, 0, err
	}
	words := make([]string, len(shape))
	for i, dim := range shape {
		words[i] = strconv.Itoa(dim)
	}
	tuple := strings.Join(words, ", ")
	if len(words) == 1 {
		tuple += "," // Python writes a tuple of one element so
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", description, tuple)
	return wrap(text + room(shape)), size, nil
}

// wrap puts a version and a length before the text of a header, and pads it: version 1.0 if the length fits.
func wrap(text string) []byte {
	header := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(padded(10, len(text))))
	if padded(10, len(text)) > math.MaxUint16 {
		header = binary.LittleEndian.AppendUint32([]byte("\x93NUMPY\x02\x00"), uint32(padded(12, len(text))))
	}
	end := len(header) + padded(len(header), len(text))
	header = append(header, text...)
	return append(append(header, strings.Repeat(" ", end-1-len(header))...), '\n')
}

// room returns the spaces that numpy.save leaves for the first dimension to grow (GROWTH_AXIS_MAX_DIGITS of numpy.lib.format), so that the
// header keeps its length when rows are added to the file.
func room(shape []int) string {
	if len(shape) == 0 {
		return ""
	}
	return strings.Repeat(" ", max(0, 21-len(strconv.Itoa(shape[0]))))
}

// padded returns the length of a header that follows before bytes, with its newline:
// up to the next multiple of 64. Like numpy.save it adds a full 64 bytes if the end is a multiple already.
func padded(before, text int) int { return (before+text+1)/64*64 + 64 - before }

// byteSize returns the size of a shape in the checkpoint.
func byteSize(dtype string, shape []int) (int64, error) {
	n := elemSize(dtype)
	for _, dim := range shape {
		if dim < 0 || dim > 0 && n > math.MaxInt64/int64(dim) {
			return 0, fmt.Errorf("shape %v does not fit: a dimension is negative, or there are too many elements", shape)
		}
		n *= int64(dim)
	}
	return n, nil
}

func elemSize(dtype string) int64 {
	if dtype == "bfloat16" {
		return 2
	}
	return int64(descriptions[dtype][2] - '0')
}

// values returns a writer that takes the bytes of a tensor in any pieces of whole elements, and writes to w what the file holds of them.
func values(w io.Writer, dtype string) io.Writer {
	if dtype == "bfloat16" {
		return &widener{w: w}
	}
	return w
}

// widener turns bfloat16 into float32, whose upper half it is; the lower half is zeros.
type widener struct {
	w   io.Writer
	buf [16 << 10]byte
}

var errHalf = errors.New("npy: the bytes end within a bfloat16")

func (e *widener) Write(p []byte) (int, error) {
	if len(p)%2 != 0 {
		return 0, errHalf
	}
	for done := 0; done < len(p); {
		part := p[done:min(len(p), done+len(e.buf)/2)]
		for i := 0; i < len(part); i += 2 {
			binary.LittleEndian.PutUint32(e.buf[2*i:], uint32(binary.LittleEndian.Uint16(part[i:]))<<16)
		}
		n, err := e.w.Write(e.buf[:2*len(part)])
		done += n / 2
		if err != nil {
			return done, err
		}
	}
	return len(p), nil
}
