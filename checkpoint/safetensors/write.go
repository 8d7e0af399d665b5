package safetensors

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// otherEndings are endings of formats that this package does not write, although a user may expect them of a file of weights.
var otherEndings = []string{".pt", ".pth", ".bin", ".ckpt", ".npy", ".npz", ".h5", ".onnx"}

// CheckName returns an error if a file's name has the ending of another format. The error names a better one. show formats names for it.
func CheckName(file string, show func(name string) string) error {
	ending := filepath.Ext(file)
	if !slices.Contains(otherEndings, ending) {
		return nil
	}
	return fmt.Errorf("%s would be a safetensors file, but its ending is of another format; name it %s",
		show(file), show(strings.TrimSuffix(file, ending)+".safetensors"))
}

// Source is a tensor to write. Its bytes need not be in memory all at once.
type Source struct {
	Name  string
	DType string // as in checkpoint.Tensor
	Shape []int
	Data  func(w io.Writer) error // writes exactly the bytes of the shape
}

// Write writes tensors and metadata to a file, in the format's order. When it returns nil the file is complete and durable; otherwise
// the file is as it was before.
func Write(path string, tensors []checkpoint.Tensor, metadata Metadata) error {
	sources := make([]Source, len(tensors))
	for i, t := range tensors {
		sources[i] = Source{t.Name, t.DType, t.Shape, replace.Bytes(t.Data)}
	}
	return WriteSources(context.Background(), path, sources, metadata)
}

// WriteSources is Write for tensors whose bytes are produced while they are written, one after the other, in the format's order.
// It checks ctx between writes.
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

// exactly is a writer that accepts left more bytes and no more.
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

// sizedTensor is a tensor with the fields of its header entry.
type sizedTensor struct {
	Source
	which int   // its type's index in dtypes
	bytes int64 // of its data
}

// inOrder checks tensors and sorts them as the format's own writer does, so that all data is aligned.
func inOrder(tensors []Source) ([]sizedTensor, error) {
	if len(tensors) > maxTensors {
		return nil, fmt.Errorf("%d tensors, at most %d are allowed", len(tensors), maxTensors)
	}
	parts := make([]sizedTensor, len(tensors))
	for i, t := range tensors {
		which := typeOf(t.DType)
		if which < 0 {
			return nil, fmt.Errorf("tensor %s: the format has no type for dtype %q", quoted(t.Name), t.DType)
		}
		for _, dim := range t.Shape {
			if dim < 0 {
				return nil, fmt.Errorf("tensor %s: shape %v has a negative dimension", quoted(t.Name), t.Shape)
			}
		}
		size, err := byteSize(dtypes[which], t.Shape)
		switch {
		case err != nil || size > math.MaxInt64 || len(t.Shape) > maxRank:
			return nil, fmt.Errorf("tensor %s: shape %v is too large", quoted(t.Name), t.Shape)
		case !utf8.ValidString(t.Name) || t.Name == metadataKey:
			return nil, fmt.Errorf("a tensor cannot be named %s", quoted(t.Name))
		}
		parts[i] = sizedTensor{t, which, int64(size)}
	}
	slices.SortFunc(parts, func(a, b sizedTensor) int {
		return cmp.Or(cmp.Compare(b.which, a.which), strings.Compare(a.Name, b.Name))
	})
	return parts, nil
}

// encodeHeader returns a file up to its data, which begins at a multiple of 8 bytes.
func encodeHeader(parts []sizedTensor, metadata Metadata) ([]byte, error) {
	out := append(make([]byte, 8), '{')
	if metadata != nil {
		text, err := encodeMetadata(metadata)
		if err != nil {
			return nil, err
		}
		out = append(append(out, text...), ',')
	}
	at, seen := int64(0), map[string]bool{}
	for _, p := range parts {
		if seen[p.Name] {
			return nil, fmt.Errorf("two tensors are named %s", quoted(p.Name))
		}
		seen[p.Name] = true
		if p.bytes > math.MaxInt64-maxHeader-8-at {
			return nil, errors.New("the tensors are larger than a file can be")
		}
		out = appendString(out, p.Name)
		out = append(append(append(out, `:{"dtype":"`...), dtypes[p.which].name...), `","shape":[`...)
		for i, dim := range p.Shape {
			if i > 0 {
				out = append(out, ',')
			}
			out = strconv.AppendInt(out, int64(dim), 10)
		}
		out = strconv.AppendInt(append(out, `],"data_offsets":[`...), at, 10)
		at += p.bytes
		out = strconv.AppendInt(append(out, ','), at, 10)
		out = append(out, `]},`...)
	}
	if out[len(out)-1] == ',' {
		out = out[:len(out)-1]
	}
	out = append(out, '}')
	for len(out)%8 != 0 {
		out = append(out, ' ')
	}
	if len(out)-8 > maxHeader {
		return nil, fmt.Errorf("%d tensors need a header of %d bytes, at most %d are allowed", len(parts), len(out)-8, maxHeader)
	}
	binary.LittleEndian.PutUint64(out, uint64(len(out)-8))
	return out, nil
}

func encodeMetadata(metadata Metadata) ([]byte, error) {
	if len(metadata) > maxFields {
		return nil, fmt.Errorf("there are %d metadata fields, at most %d are allowed", len(metadata), maxFields)
	}
	out, seen := []byte(`"`+metadataKey+`":{`), map[string]bool{}
	for i, f := range metadata {
		if seen[f.Key] || !utf8.ValidString(f.Key) || !utf8.ValidString(f.Value) {
			return nil, fmt.Errorf("metadata %s occurs twice, or is not UTF-8", quoted(f.Key))
		}
		seen[f.Key] = true
		if i > 0 {
			out = append(out, ',')
		}
		out = appendString(append(appendString(out, f.Key), ':'), f.Value)
	}
	return append(out, '}'), nil
}
