package main

import (
	"bytes"
	"encoding/binary"
	"math"

	"ddpbatch/checkpoint"
)

// tolerance says how far apart two floats may be and still count as the same: abs + rel*|second|, as in numpy.allclose. Where both are 0, only equal bits
// are the same.
type tolerance struct{ abs, rel float64 }

// floatSizes are the types whose elements are numbers with a distance.
var floatSizes = map[string]int{"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

// byteSizes are the other types' elements.
var byteSizes = map[string]int{"int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "complex64": 8}

// count adds what differs in a piece of a tensor.
func (d *tensorDiffer) count(x, y []byte, t tolerance) {
	size, floats := floatSizes[d.DTypeA]
	if !floats {
		size = max(1, byteSizes[d.DTypeA]) // of types that are not known, bytes
		for i := 0; i < len(x); i += size {
			if !bytes.Equal(x[i:i+size], y[i:i+size]) {
				d.Differ++
			}
		}
		return
	}
	u, v := floatsOf(d.DTypeA, size, x), floatsOf(d.DTypeA, size, y)
	for i := range u {
		if !bytes.Equal(x[i*size:(i+1)*size], y[i*size:(i+1)*size]) && d.number(u[i], v[i], t) {
			d.Differ++
		}
	}
}

// number compares two numbers whose bits differ.
func (d *tensorDiffer) number(a, b float64, t tolerance) (apart bool) {
	if t.abs+t.rel > 0 && (a == b || math.Abs(a-b) <= t.abs+t.rel*math.Abs(b) && !math.IsInf(b, 0) || a != a && b != b) {
		return false
	}
	distance := math.Abs(a - b)
	if math.IsNaN(distance) || math.IsInf(a, 0) || math.IsInf(b, 0) {
		d.NonFinite++
		return true
	}
	raise(&d.MaxAbs, distance)
	if larger := max(math.Abs(a), math.Abs(b)); larger > 0 {
		raise(&d.MaxRel, distance/larger)
	}
	return true
}

// raise makes *to at least v.
func raise(to **float64, v float64) {
	if math.IsInf(v, 0) { // the distance of two finite numbers may not be one
		v = math.MaxFloat64
	}
	if *to == nil || **to < v {
		*to = &v
	}
}

// floatsOf are the numbers in data, exactly.
func floatsOf(dtype string, size int, data []byte) []float64 {
	out := make([]float64, len(data)/size)
	if dtype == "float64" {
		for i := range out {
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
		}
		return out
	}
	singles := make([]float32, len(out))
	if err := (checkpoint.Tensor{DType: dtype, Data: data}).ConvertTo(singles); err != nil {
		panic("ckpt: " + err.Error()) // the type and the length are known
	}
	for i, v := range singles {
		out[i] = float64(v)
	}
	return out
}
