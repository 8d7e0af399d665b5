package safetensors

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/internal/replace"
	"ddpbatch/internal/vfs"
)

// Source is a tensor to write, whose bytes need not be in memory all at once.
type Source struct {
	Name  string
	DType string // as checkpoint.Tensor's
	Shape []int
	Data  func(w io.Writer) error // writes exactly the bytes of the shape
}

// Write puts tensors and metadata into a file, in the format's order. The file is there whole and durably when this returns
// nil, or else as it was before.
func Write(path string, tensors []checkpoint.Tensor, metadata Metadata) error {
	sources := make([]Source, len(tensors))
	for i, t := range tensors {
		sources[i] = Source{t.Name, t.DType, t.Shape, func(w io.Writer) error {
			_, err := w.Write(t.Data)
			return err
		}}
	}
	return WriteSources(context.Background(), path, sources, metadata)
}

// WriteSources is Write for tensors that are made while they are written, one after the other, in the format's order. It looks at ctx between writes.
func WriteSources(ctx context.Context, path string, tensors []Source, metadata Metadata) error {
	if err := write(ctx, vfs.OS{}, path, tensors, metadata); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	return nil
}

func write(ctx context.Context, fs vfs.FS, path string, tensors []Source, metadata Metadata) error {
	parts, err := inOrder(tensors)
	if err != nil {
		return err
	}
	header, err := encodeHeader(parts, metadata)
	if err != nil {
		return err
	}
	return replace.File(ctx, fs, path, func(w io.Writer) error {
		if _, err := w.Write(header); err != nil {
			return err
		}
		for _, p := range parts {
			limited := &exactly{w: w, left: p.bytes}
			if err := p.Data(limited); err != nil {
				return fmt.Errorf("tensor %s: %w", quoted(p.Name), err)
			}
			if limited.left != 0 {
				return fmt.Errorf("tensor %s: %w", quoted(p.Name), errLength)
			}
		}
		return nil
	})
}

var errLength = errors.New("its data is not as long as its shape says")

// exactly takes so many bytes and no more.
type exactly struct {
	w    io.Writer
	left int64
}

func (e *exactly) Write(p []byte) (int, error) {
	if int64(len(p)) > e.left {
		return 0, errLength
	}
	n, err := e.w.Write(p)
	e.left -= int64(n)
	return n, err
}
