package checkpoint

import (
	"bytes"
	"math"
	"testing"
)

// TestFloat32Tensor checks the bytes against IEEE 754: 1 is 3f800000, -2 is c0000000.
func TestFloat32Tensor(t *testing.T) {
	t.Parallel()
	v := []float32{1, -2, float32(math.Copysign(0, -1)), float32(math.Inf(1))}
	tensor := Float32Tensor("w", []int{2, 2}, v)
	want := []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x80, 0, 0, 0x80, 0x7f}
	if !bytes.Equal(tensor.Data, want) {
		t.Errorf("bytes % x, want % x", tensor.Data, want)
	}
	got := make([]float32, 4)
	must(t, tensor.Float32s(got))
	for i := range v {
		if math.Float32bits(got[i]) != math.Float32bits(v[i]) {
			t.Errorf("element %d is %v, want %v", i, got[i], v[i])
		}
	}
	if err := tensor.Float32s(got[:3]); err == nil {
		t.Error("a shorter slice: no error")
	}
	if err := (Tensor{Name: "n", DType: "int32", Shape: []int{4}, Data: want}).Float32s(got); err == nil {
		t.Error("another dtype: no error")
	}
	if scalar := Float32Tensor("s", nil, []float32{1}); len(scalar.Data) != 4 {
		t.Errorf("a scalar has %d bytes", len(scalar.Data))
	}
	defer func() {
		if recover() == nil {
			t.Error("a shape that does not fit: no panic")
		}
	}()
	Float32Tensor("w", []int{3}, v)
}

func TestByteSize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		dtype string
		shape []int
		want  int64 // -1: an error
	}{
		{"scalar", "float64", nil, 8},
		{"matrix", "bfloat16", []int{3, 5}, 30},
		{"empty", "int8", []int{4, 0}, 0},
		{"empty, huge otherwise", "int8", []int{math.MaxInt, math.MaxInt, 0}, 0},
		{"largest", "uint8", []int{maxRawBytes}, maxRawBytes},
		{"too large", "uint8", []int{maxRawBytes, 2}, -1},
		{"by its dtype", "uint16", []int{maxRawBytes}, -1},
		{"overflow to something small", "uint8", []int{1 << 32, 1 << 32, 1}, -1},
		{"negative", "uint8", []int{-1}, -1},
		{"negative and empty", "uint8", []int{0, -1}, -1},
		{"unknown", "complex64", []int{1}, -1},
	}
	for _, test := range tests {
		got, err := byteSize(test.dtype, test.shape)
		if err != nil {
			got = -1
		}
		if got != test.want {
			t.Errorf("%s: %d (%v), want %d", test.name, got, err, test.want)
		}
	}
}
