package element

import (
	"fmt"
	"math/bits"
	"reflect"
)

// Type is an element type. The codes are part of the message format.
type Type uint8

const (
	Float32 Type = iota + 1
	Float64
	Int32
	Int64
	Uint8
	Int8
	Int16
	Uint16
	Uint32
	Uint64
	Float16
	BFloat16
	Bool
	Complex64
	Complex128
)

var types = [...]struct {
	name string
	size int
}{
	Float32: {"float32", 4}, Float64: {"float64", 8},
	Int32: {"int32", 4}, Int64: {"int64", 8}, Uint8: {"uint8", 1},
	Int8: {"int8", 1}, Int16: {"int16", 2}, Uint16: {"uint16", 2}, Uint32: {"uint32", 4}, Uint64: {"uint64", 8},
	Float16: {"float16", 2}, BFloat16: {"bfloat16", 2},
	Bool: {"bool", 1}, Complex64: {"complex64", 8}, Complex128: {"complex128", 16},
}

// Valid reports whether t is one of the types above: codes also come from peers.
func (t Type) Valid() bool { return int(t) < len(types) && types[t].size > 0 }

// Size is the size of one element in bytes, or 0 if t is not valid.
func (t Type) Size() int {
	if !t.Valid() {
		return 0
	}
	return types[t].size
}

func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("element type %d", uint8(t))
	}
	return types[t].name
}

// Op is how a reduction combines two elements. The codes are part of the message format.
//
// Integers wrap around. Min and Max return NaN if either element is NaN, and count -0 as less than 0; complex numbers have neither.
// Bitwise operations are for integers and bools. For bools Sum and Max are "or", Product and Min "and".
type Op uint8

const (
	Sum Op = iota + 1
	Min
	Max
	Product
	BAnd
	BOr
	BXor
	PreMulSum // every rank's elements are multiplied by the rank's own factor, then summed
	Avg       // the sum, divided by the number of ranks at the end
)

var opNames = [...]string{
	Sum: "sum", Min: "min", Max: "max", Product: "product",
	BAnd: "band", BOr: "bor", BXor: "bxor", PreMulSum: "premul_sum", Avg: "avg",
}

// Valid reports whether op is one of the operations above.
func (op Op) Valid() bool { return op > 0 && int(op) < len(opNames) }

func (op Op) String() string {
	if !op.Valid() {
		return fmt.Sprintf("op %d", uint8(op))
	}
	return opNames[op]
}

// Number is a Go type that stands for one of the element types. int and uint have the size of the machine's words.
type Number interface {
	~float32 | ~float64 |
		~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~bool | ~complex64 | ~complex128
}

// TypeOf returns the element type of T. Only F16 and BF16 are recognized by name; any other named type counts as its underlying
// type, so a type defined as F16 is a Uint16. It takes a few nanoseconds and does not allocate.
func TypeOf[T Number]() Type {
	var zero T
	switch any(zero).(type) {
	case F16:
		return Float16
	case BF16:
		return BFloat16
	case float32:
		return Float32
	case float64:
		return Float64
	}
	return typesByKind[reflect.TypeFor[T]().Kind()]
}

var typesByKind = [...]Type{
	reflect.Float32: Float32, reflect.Float64: Float64,
	reflect.Int8: Int8, reflect.Int16: Int16, reflect.Int32: Int32, reflect.Int64: Int64,
	reflect.Uint8: Uint8, reflect.Uint16: Uint16, reflect.Uint32: Uint32, reflect.Uint64: Uint64,
	reflect.Int:       [...]Type{32: Int32, 64: Int64}[bits.UintSize],
	reflect.Uint:      [...]Type{32: Uint32, 64: Uint64}[bits.UintSize],
	reflect.Bool:      Bool,
	reflect.Complex64: Complex64, reflect.Complex128: Complex128,
}
