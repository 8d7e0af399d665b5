package distributed

import (
	"fmt"

	"ddpbatch/checkpoint/internal/manifest"
)

// Array is one named array of the training state, as one rank has it.
type Array struct {
	Name  string // 1 to 256 bytes of UTF-8 without control characters
	DType string // as checkpoint.Tensor has it: "float32", "bfloat16", "int64", ...
	Shape []int  // empty: a scalar
	// Data is the live memory, row-major and little-endian. The Saver reads it inside Save only, and never writes it.
	Data []byte
	// Replicated says that every rank that lists the name holds the same bytes: they share the work of writing it.
	// Otherwise exactly one rank lists it.
	Replicated bool
}

// listing is an Array as other ranks are told of it.
type listing struct {
	Name       string `json:"name"`
	DType      string `json:"dtype"`
	Shape      []int  `json:"shape"`
	Bytes      int64  `json:"bytes"`
	Replicated bool   `json:"replicated,omitempty"`
}

// list describes the arrays of this rank, and refuses what could not be recorded.
func list(arrays []Array) ([]listing, error) {
	all := make([]listing, len(arrays))
	seen := map[string]bool{}
	for i, a := range arrays {
		l := listing{Name: a.Name, DType: a.DType, Shape: a.Shape, Bytes: int64(len(a.Data)), Replicated: a.Replicated}
		if err := l.check(); err != nil {
			return nil, err
		}
		if seen[a.Name] {
			return nil, fmt.Errorf("array %q is listed twice", a.Name)
		}
		seen[a.Name] = true
		all[i] = l
	}
	return all, nil
}

func (l listing) check() error {
	if err := manifest.CheckTensorName(l.Name); err != nil {
		return err
	}
	size, err := manifest.ByteSize(l.DType, l.Shape)
	if err != nil {
		return fmt.Errorf("array %q: %w", l.Name, err)
	}
	if size != l.Bytes {
		return fmt.Errorf("array %q: shape %v of %s needs %d bytes, it has %d", l.Name, l.Shape, l.DType, size, l.Bytes)
	}
	return nil
}
