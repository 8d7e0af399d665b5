package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"ddpbatch/checkpoint/internal/manifest"
)

// Tensor is a named array. Data is row-major and little-endian; the state that holds
// the tensor owns it.
type Tensor struct {
	Name  string // 1 to 256 bytes of UTF-8 without control characters
	DType string // bool, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, complex64, or int or uint with 8, 16, 32 or 64
	Shape []int  // empty: a scalar; a dimension may be 0
	Data  []byte
	// From, unless nil, has the bytes in place of Data, as many as the shape takes. Save reads each
	// once, by several goroutines, and holds few of them; what is loaded never has it.
	From io.ReaderAt
}

// size is how many bytes the tensor has, or, where they are not in memory, should have.
func (t *Tensor) size() int64 {
	if t.From == nil {
		return int64(len(t.Data))
	}
	size, _ := manifest.ByteSize(t.DType, t.Shape) // validate says what is wrong with it
	return size
}

// Float32Tensor copies v into a tensor. It panics where the shape does not hold len(v) elements.
func Float32Tensor(name string, shape []int, v []float32) Tensor {
	size, err := manifest.ByteSize("float32", shape)
	if err != nil || size != 4*int64(len(v)) {
		panic("checkpoint: shape does not fit the values")
	}
	data := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x))
	}
	return Tensor{Name: name, DType: "float32", Shape: append([]int{}, shape...), Data: data}
}

// Float32s copies t into dst; an error where type or size differ.
func (t Tensor) Float32s(dst []float32) error {
	if t.DType != "float32" {
		return fmt.Errorf("tensor %q holds %s, not float32", t.Name, t.DType)
	}
	if len(t.Data) != 4*len(dst) {
		return fmt.Errorf("tensor %q holds %d bytes (shape %v), not %d float32 values", t.Name, len(t.Data), t.Shape, len(dst))
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return nil
}
