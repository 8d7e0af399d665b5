package npy

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/internal/replace"
	"ddpbatch/internal/vfs"
)

// Write writes a tensor as a whole file. An error of the tensor comes before anything is written; the others are w's.
func Write(w io.Writer, t checkpoint.Tensor) error {
	if err := write(w, t.DType, t.Shape, func(w io.Writer) error {
		_, err := w.Write(t.Data)
		return err
	}, int64(len(t.Data))); err != nil {
		return fmt.Errorf("write npy: tensor %q: %w", t.Name, err)
	}
	return nil
}

// WriteFile puts a tensor into a file, whole and durably, or leaves the file as it was. data writes the tensor's bytes in pieces of whole elements, which
// need not be in memory all at once. It looks at ctx between writes.
func WriteFile(ctx context.Context, path, dtype string, shape []int, data func(w io.Writer) error) error {
	err := replace.File(ctx, vfs.OS{}, path, func(w io.Writer) error { return write(w, dtype, shape, data, -1) })
	if err != nil {
		return fmt.Errorf("write npy: %w", err)
	}
	return nil
}

// write writes a file whose tensor has so many bytes; -1: as many as its shape says.
func write(w io.Writer, dtype string, shape []int, data func(w io.Writer) error, have int64) error {
	header, size, err := makeHeader(dtype, shape)
	if err != nil {
		return err
	}
	if have >= 0 && have != size {
		return fmt.Errorf("shape %v of %s takes %d bytes, it has %d", shape, dtype, size, have)
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

var errLength = errors.New("its data is not as long as its shape says")

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
