package npy

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// Write writes an array of a shape, row by row: format 1.0, little-endian.
func Write[T float32 | int64](t testing.TB, path string, shape []int, v []T) {
	t.Helper()
	size, words := 1, ""
	for _, d := range shape {
		size *= d
		words += fmt.Sprintf("%d,", d)
	}
	if size != len(v) {
		t.Fatalf("%s: %d elements do not have the shape %v", path, len(v), shape)
	}
	descr := "<f4"
	if _, whole := any(v).([]int64); whole {
		descr = "<i8"
	}
	// The data begin at a multiple of 64 bytes, the header ends with a newline.
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, words)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	file := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	file = append(file, header...)
	for _, x := range v {
		switch x := any(x).(type) {
		case float32:
			file = binary.LittleEndian.AppendUint32(file, math.Float32bits(x))
		case int64:
			file = binary.LittleEndian.AppendUint64(file, uint64(x))
		}
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
}
