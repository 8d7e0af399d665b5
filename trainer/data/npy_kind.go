package data

import (
	"encoding/binary"
	"fmt"
	"math"
)

// npy is an array of numpy's.
type npy struct {
	kind  npyKind
	shape []int    // at least one dimension, none of them 0
	data  []byte   // little-endian, row-major; kind.size bytes for each element
	file  *mapping // that data lies in
}

// npyKind is a type of elements.
type npyKind struct {
	descr string // in the file, without the order of bytes
	name  string // numpy's
	size  int    // bytes of an element
	float bool
}

var npyKinds = []npyKind{
	{"f4", "float32", 4, true}, {"f8", "float64", 8, true}, {"b1", "bool", 1, false},
	{"i1", "int8", 1, false}, {"i2", "int16", 2, false}, {"i4", "int32", 4, false}, {"i8", "int64", 8, false},
	{"u1", "uint8", 1, false}, {"u2", "uint16", 2, false}, {"u4", "uint32", 4, false}, {"u8", "uint64", 8, false},
}

// npyKindOf reads a description such as "<f4". One byte has no order: "|u1".
func npyKindOf(descr string) (npyKind, error) {
	for _, k := range npyKinds {
		if descr == "<"+k.descr || k.size == 1 && descr == "|"+k.descr {
			return k, nil
		}
		if descr == ">"+k.descr {
			return npyKind{}, fmt.Errorf("the array is big-endian; save a.astype(%q)", "<"+k.descr)
		}
	}
	return npyKind{}, fmt.Errorf("elements of the type %.40q are not supported; save a.astype(%q)", descr, "<f4")
}

// checkBooleans refuses what numpy never writes.
func (a *npy) checkBooleans() error {
	if a.kind.descr != "b1" {
		return nil
	}
	for i, b := range a.data {
		if b > 1 {
			return fmt.Errorf("element %d is %d, and a boolean is 0 or 1; copy the file again, or save a.astype(%q)", i, b, "|u1")
		}
	}
	return nil
}

// bits is element i, its sign not extended.
func (a *npy) bits(i int) uint64 {
	b := a.data[i*a.kind.size:][:a.kind.size]
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// integer is element i of a kind that is not float. What int64 does not hold is negative.
func (a *npy) integer(i int) int64 {
	bits := a.bits(i)
	if a.kind.descr[0] != 'i' {
		return int64(bits)
	}
	unused := 64 - 8*a.kind.size
	return int64(bits<<unused) >> unused
}

// float is element i of any kind, rounded to float32.
func (a *npy) float(i int) float32 {
	switch a.kind.descr {
	case "f4":
		return math.Float32frombits(uint32(a.bits(i)))
	case "f8":
		return float32(math.Float64frombits(a.bits(i)))
	case "u8":
		return float32(a.bits(i))
	}
	return float32(a.integer(i))
}

// text is element i for an error.
func (a *npy) text(i int) string {
	switch a.kind.descr {
	case "f4", "f8":
		v := math.Float64frombits(a.bits(i))
		if a.kind.size == 4 {
			v = float64(a.float(i))
		}
		return fmt.Sprint(v)
	case "u8":
		return fmt.Sprint(a.bits(i))
	}
	return fmt.Sprint(a.integer(i))
}
