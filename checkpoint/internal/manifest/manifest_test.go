package manifest

import (
	"math"
	"testing"
)

func TestByteSize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		dtype string
		shape []int
		want  int64 // -1 means an error
	}{
		{"scalar", "float64", nil, 8},
		{"matrix", "bfloat16", []int{3, 5}, 30},
		{"pairs", "complex64", []int{3}, 24},
		{"float8", "float8_e4m3fn", []int{3}, 3},
		{"empty", "int8", []int{4, 0}, 0},
		{"empty, huge otherwise", "int8", []int{math.MaxInt, math.MaxInt, 0}, 0},
		{"largest", "uint8", []int{1 << 20, MaxRawBytes >> 20}, MaxRawBytes},
		{"too large", "uint8", []int{1 << 20, MaxRawBytes >> 20, 2}, -1},
		{"by its dtype", "uint16", []int{1 << 20, MaxRawBytes >> 20}, -1},
		{"overflow to something small", "uint8", []int{1 << 30, 1 << 30, 1 << 4}, -1},
		{"negative", "uint8", []int{-1}, -1},
		{"negative and empty", "uint8", []int{0, -1}, -1},
		{"32 dimensions", "uint8", make([]int, 32), 0},
		{"33 dimensions", "uint8", make([]int, 33), -1},
		{"unknown", "complex128", []int{1}, -1},
	}
	for _, test := range tests {
		got, err := ByteSize(test.dtype, test.shape)
		if err != nil {
			got = -1
		}
		if got != test.want {
			t.Errorf("%s: %d (%v), want %d", test.name, got, err, test.want)
		}
	}
}

// TestDTypesHaveTheSizesOfTheirNames compares the table with the names, which contain the bits of an element.
func TestDTypesHaveTheSizesOfTheirNames(t *testing.T) {
	t.Parallel()
	bits := map[string]int{
		"bool": 8, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64,
		"float8_e4m3fn": 8, "float8_e5m2": 8, "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "complex64": 64,
	}
	if len(dtypes) != len(bits) {
		t.Errorf("%d dtypes, want %d", len(dtypes), len(bits))
	}
	for name, want := range bits {
		if size, ok := ElemSize(name); !ok || 8*size != want {
			t.Errorf("%s has %d bytes (%v)", name, size, ok)
		}
		l, ok := Layout(name)
		wantWidth, wantFloat := want/8, name[0] != 'i' && name[0] != 'u' && name != "bool" && want > 8
		if name == "complex64" {
			wantWidth = 4
		}
		if !ok || l.Width != wantWidth || l.Float != wantFloat {
			t.Errorf("%s is laid out as %+v (%v)", name, l, ok)
		}
	}
	if _, ok := Layout("complex128"); ok {
		t.Error("complex128 has a layout")
	}
}
