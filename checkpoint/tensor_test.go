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
