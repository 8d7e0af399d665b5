package checkpoint

import (
	"encoding/binary"
	"math"
	"testing"
)

// Every float16, against the definition of its value.
func TestConvertHalves(t *testing.T) {
	data := make([]byte, 0, 2<<16)
	for h := range 1 << 16 {
		data = binary.LittleEndian.AppendUint16(data, uint16(h))
	}
	got := make([]float32, 1<<16)
	if err := (Tensor{Name: "h", DType: "float16", Shape: []int{1 << 16}, Data: data}).ConvertTo(got); err != nil {
		t.Fatal(err)
	}
	for h, v := range got {
		exponent, fraction := h>>10&31, float64(h&1023)
		want := math.Ldexp(1+fraction/1024, exponent-15)
		switch {
		case exponent == 0:
			want = math.Ldexp(fraction, -24)
		case exponent == 31 && fraction == 0:
			want = math.Inf(1)
		case exponent == 31:
			want = math.NaN()
		}
		if h>>15 == 1 {
			want = -want
		}
		if float64(v) != want && !(math.IsNaN(want) && v != v) || math.Signbit(float64(v)) != (h>>15 == 1) {
			t.Fatalf("%#04x is %v, want %v", h, v, want)
		}
	}
}

func TestConvertTo(t *testing.T) {
	one := make([]float32, 1)
	double := binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.Pi))
	if err := (Tensor{Name: "d", DType: "float64", Data: double}).ConvertTo(one); err != nil || one[0] != math.Pi {
		t.Errorf("float64 gives %v, error %v", one[0], err)
	}
	brain := binary.LittleEndian.AppendUint16(nil, 0xc000)
	if err := (Tensor{Name: "b", DType: "bfloat16", Data: brain}).ConvertTo(one); err != nil || one[0] != -2 {
		t.Errorf("bfloat16 gives %v, error %v", one[0], err)
	}
	if err := (Tensor{Name: "i", DType: "int32", Data: make([]byte, 4)}).ConvertTo(one); err == nil {
		t.Error("int32 is taken for floating-point numbers")
	}
	if err := (Tensor{Name: "s", DType: "float16", Data: make([]byte, 1)}).ConvertTo(one); err == nil {
		t.Error("half a number is taken")
	}
}
