package element

import "fmt"

// Type is an element type. The codes are part of the wire's format.
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

// Valid tells whether t is one of the types above: codes come off the wire, too.
func (t Type) Valid() bool { return int(t) < len(types) && types[t].size > 0 }

// Size is the bytes of one element; 0 for a code that is no type.
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
