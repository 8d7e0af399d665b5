package element

import (
	"math/bits"
	"testing"
)

func TestTypeOf(t *testing.T) {
	type (
		loss   float32
		rank   int
		flag   bool
		pixel  uint8
		half   F16
		signal complex64
	)
	native := map[int][2]Type{32: {Int32, Uint32}, 64: {Int64, Uint64}}[bits.UintSize]
	for _, c := range []struct {
		got, want Type
	}{
		{TypeOf[float32](), Float32}, {TypeOf[float64](), Float64},
		{TypeOf[int8](), Int8}, {TypeOf[int16](), Int16}, {TypeOf[int32](), Int32}, {TypeOf[int64](), Int64},
		{TypeOf[uint8](), Uint8}, {TypeOf[uint16](), Uint16}, {TypeOf[uint32](), Uint32}, {TypeOf[uint64](), Uint64},
		{TypeOf[int](), native[0]}, {TypeOf[uint](), native[1]},
		{TypeOf[F16](), Float16}, {TypeOf[BF16](), BFloat16}, {TypeOf[bool](), Bool},
		{TypeOf[complex64](), Complex64}, {TypeOf[complex128](), Complex128},
		{TypeOf[loss](), Float32}, {TypeOf[rank](), native[0]}, {TypeOf[flag](), Bool},
		{TypeOf[pixel](), Uint8}, {TypeOf[half](), Uint16}, {TypeOf[signal](), Complex64},
	} {
		if c.got != c.want {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = TypeOf[BF16](), TypeOf[rank]() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCodesNeverChange checks the codes that other versions of this program send.
func TestCodesNeverChange(t *testing.T) {
	for code, want := range []string{1: "float32", 2: "float64", 3: "int32", 4: "int64", 5: "uint8", 6: "int8", 7: "int16", 8: "uint16",
		9: "uint32", 10: "uint64", 11: "float16", 12: "bfloat16", 13: "bool", 14: "complex64", 15: "complex128"} {
		if code > 0 && Type(code).String() != want {
			t.Errorf("type %d is %v, want %s", code, Type(code), want)
		}
	}
	for code, want := range []string{1: "sum", 2: "min", 3: "max", 4: "product", 5: "band", 6: "bor", 7: "bxor",
		8: "premul_sum", 9: "avg"} {
		if code > 0 && Op(code).String() != want {
			t.Errorf("operation %d is %v, want %s", code, Op(code), want)
		}
	}
	for _, code := range []uint8{0, 16, 255} {
		if Type(code).Valid() || Type(code).Size() != 0 {
			t.Errorf("type %d is valid", code)
		}
	}
	for _, code := range []uint8{0, 10, 255} {
		if Op(code).Valid() {
			t.Errorf("operation %d is valid", code)
		}
	}
}
