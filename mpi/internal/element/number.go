package element

import (
	"math/bits"
	"reflect"
)

// Number is a Go type that stands for one of the element types. int and uint
// are as long as the machine's words.
type Number interface {
	~float32 | ~float64 |
		~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~bool | ~complex64 | ~complex128
}

// TypeOf is the element type of T. F16 and BF16 are known by name; any other named type counts as what it is made from,
// so a type made from F16 is a Uint16. It costs a few nanoseconds and no allocation.
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
	return kinds[reflect.TypeFor[T]().Kind()]
}

var kinds = [...]Type{
	reflect.Float32: Float32, reflect.Float64: Float64,
	reflect.Int8: Int8, reflect.Int16: Int16, reflect.Int32: Int32, reflect.Int64: Int64,
	reflect.Uint8: Uint8, reflect.Uint16: Uint16, reflect.Uint32: Uint32, reflect.Uint64: Uint64,
	reflect.Int:       [...]Type{32: Int32, 64: Int64}[bits.UintSize],
	reflect.Uint:      [...]Type{32: Uint32, 64: Uint64}[bits.UintSize],
	reflect.Bool:      Bool,
	reflect.Complex64: Complex64, reflect.Complex128: Complex128,
}
