package checkpoint

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// ReadSafetensors reads all tensors of a file, in the order of their data. No more is read than the file has, and
// tensors may not overlap.
func ReadSafetensors(path string) ([]Tensor, error) {
	tensors, err := readSafetensors(path)
	if err != nil {
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, classify(fmt.Errorf("read safetensors: %w", err))
		}
		return nil, classify(fmt.Errorf("read safetensors: %s: %w", path, err))
	}
	return tensors, nil
}

func readSafetensors(path string) ([]Tensor, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file") // a pipe would be waited for
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return parseSafetensors(f, info.Size())
}

// parseSafetensors reads a file of size bytes.
func parseSafetensors(f io.ReaderAt, size int64) ([]Tensor, error) {
	var length [8]byte
	if _, err := f.ReadAt(length[:], 0); err != nil {
		return nil, fmt.Errorf("it is too short for the length of its header: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxSafetensorsHeader || int64(n) > size-8 {
		return nil, fmt.Errorf("it is no safetensors file: a header of %d bytes does not fit", n)
	}
	header := make([]byte, n)
	if _, err := f.ReadAt(header, 8); err != nil {
		return nil, fmt.Errorf("read its header: %w", err)
	}
	begin := 8 + int64(n)
	entries, err := parseSafetensorsHeader(header, size-begin)
	if err != nil {
		return nil, err
	}
	var tensors []Tensor
	at := int64(0)
	for _, name := range inFileOrder(entries) {
		s := entries[name]
		if s.Offsets[0] < at {
			return nil, fmt.Errorf("tensor %q begins in the middle of another", name)
		}
		at = s.Offsets[1]
		dtype, _ := dtypeOf(s.DType) // checked with the header
		t := Tensor{Name: name, DType: dtype, Shape: s.Shape, Data: make([]byte, at-s.Offsets[0])}
		if _, err := f.ReadAt(t.Data, begin+s.Offsets[0]); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		tensors = append(tensors, t)
	}
	return tensors, nil
}

// inFileOrder are the names of entries by where their data lies.
func inFileOrder(entries map[string]safetensor) []string {
	var names []string
	for name := range entries {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := entries[a].Offsets, entries[b].Offsets
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), cmp.Compare(a, b))
	})
	return names
}
