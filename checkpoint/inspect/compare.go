package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/text"
)

// Difference describes how two contents differ (ddpbatch ckpt diff); its JSON names are a contract.
type Difference struct {
	Same    bool            `json:"same"`
	OnlyA   []string        `json:"only_a"`
	OnlyB   []string        `json:"only_b"`
	Equal   int             `json:"equal"`   // number of tensors that are the same
	Tensors []TensorDiffers `json:"tensors"` // those that are not
	Values  []ValueDiffers  `json:"values"`
	// The largest distances of two finite floats, including those within the tolerance, and the tensors they are in;
	// nil: all are equal.
	MaxAbs *Distance `json:"max_abs"`
	MaxRel *Distance `json:"max_rel"` // relative to the larger of the two
}

// Distance is the distance of two numbers of a tensor.
type Distance struct {
	Tensor string  `json:"tensor"`
	By     float64 `json:"by"`
}

// String returns the distance for a person to read.
func (d Distance) String() string { return fmt.Sprintf("%.2g in %s", d.By, text.Clean(d.Tensor)) }

// Farthest returns the largest difference, absolute and relative, for a person to read. It is empty if no finite numbers differ.
func (d *Difference) Farthest() string {
	if d.MaxAbs == nil {
		return ""
	}
	return fmt.Sprintf("largest difference: absolute %v, relative %v", d.MaxAbs, d.MaxRel)
}

// raiseTo makes d at least the distance that a tensor has.
func raiseTo(d **Distance, tensor string, by *float64) {
	if by != nil && (*d == nil || (*d).By < *by) {
		*d = &Distance{tensor, *by}
	}
}

// TensorDiffers describes how a tensor differs.
type TensorDiffers struct {
	Name      string   `json:"name"`
	DTypeA    string   `json:"dtype_a"`
	DTypeB    string   `json:"dtype_b"`
	ShapeA    []int    `json:"shape_a"`
	ShapeB    []int    `json:"shape_b"`
	Elements  int64    `json:"elements"`   // number compared; 0: type or shape differ
	Differ    int64    `json:"differ"`     // how many of them differ
	NonFinite int64    `json:"non_finite"` // how many of those have a NaN or infinity on either side
	MaxAbs    *float64 `json:"max_abs"`    // over finite ones that differ; nil: there are none, or the elements are not floats
	MaxRel    *float64 `json:"max_rel"`    // relative to the larger of the two

	comparable     bool     // type and shape are the same
	maxAbs, maxRel *float64 // like MaxAbs and MaxRel, but including those within the tolerance
}

// Is returns the type, shape or number of non-finite elements, whichever shows the difference best.
func (d TensorDiffers) Is() string {
	switch {
	case d.DTypeA != d.DTypeB:
		return d.DTypeA + " and " + d.DTypeB
	case !slices.Equal(d.ShapeA, d.ShapeB):
		return fmt.Sprint(d.ShapeA, " and ", d.ShapeB)
	case d.NonFinite > 0:
		return fmt.Sprintf("%s, %d not finite", d.DTypeA, d.NonFinite)
	}
	return d.DTypeA
}

// ValueDiffers is a value that the two do not have in common.
type ValueDiffers struct {
	Name string  `json:"name"`
	A    *string `json:"a"` // nil: the first has no such value
	B    *string `json:"b"`
}

// Compare compares two contents, tensor by tensor, and uses little memory. It sorts the tensors of both.
func Compare(ctx context.Context, a, b *Contents, t Tolerance) (*Difference, error) {
	align(a, b)
	d := &Difference{OnlyA: []string{}, OnlyB: []string{}, Tensors: []TensorDiffers{}, Values: differingValues(a, b)}
	buffers := [2][]byte{make([]byte, comparePiece), make([]byte, comparePiece)}
	i, j := 0, 0
	for i < len(a.tensors) || j < len(b.tensors) {
		switch {
		case j == len(b.tensors) || i < len(a.tensors) && a.tensors[i].name < b.tensors[j].name:
			d.OnlyA = append(d.OnlyA, a.tensors[i].name)
			i++
		case i == len(a.tensors) || a.tensors[i].name > b.tensors[j].name:
			d.OnlyB = append(d.OnlyB, b.tensors[j].name)
			j++
		default:
			found, err := compareTensor(ctx, a.tensors[i], b.tensors[j], t, buffers)
			if err != nil {
				return nil, err
			}
			raiseTo(&d.MaxAbs, found.Name, found.maxAbs)
			raiseTo(&d.MaxRel, found.Name, found.maxRel)
			if found.same() {
				d.Equal++
			} else {
				d.Tensors = append(d.Tensors, *found)
			}
			i, j = i+1, j+1
		}
	}
	d.Same = len(d.OnlyA)+len(d.OnlyB)+len(d.Tensors)+len(d.Values) == 0
	return d, cmp.Or(a.check(), b.check())
}

// compareTensor counts the elements that differ, and finds the largest distances, including those within the tolerance.
func compareTensor(ctx context.Context, a, b tensor, t Tolerance, buffers [2][]byte) (*TensorDiffers, error) {
	d := &TensorDiffers{Name: a.name, DTypeA: a.dtype, DTypeB: b.dtype, ShapeA: a.shape, ShapeB: b.shape}
	if a.dtype != b.dtype || !slices.Equal(a.shape, b.shape) || a.bytes != b.bytes {
		return d, nil
	}
	d.Elements, d.comparable = 1, true
	for _, dim := range a.shape {
		d.Elements *= int64(dim)
	}
	for at := int64(0); at < a.bytes; at += comparePiece {
		n := min(comparePiece, a.bytes-at)
		x, y := buffers[0][:n], buffers[1][:n]
		if err := a.read(ctx, at, x); err != nil {
			return nil, err
		}
		if err := b.read(ctx, at, y); err != nil {
			return nil, err
		}
		if !bytes.Equal(x, y) {
			d.count(x, y, t)
		}
	}
	return d, nil
}

// same reports whether the elements were compared and all are the same.
func (d TensorDiffers) same() bool { return d.comparable && d.Differ == 0 }

// differingValues returns the values that two checkpoints do not have in common. A safetensors file has no values to compare.
func differingValues(a, b *Contents) []ValueDiffers {
	list := []ValueDiffers{}
	if a.values == nil || b.values == nil {
		return list
	}
	keys := maps.Clone(a.values)
	maps.Copy(keys, b.values)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		x, inA := a.values[key]
		y, inB := b.values[key]
		if inA && inB && bytes.Equal(x, y) {
			continue
		}
		v := ValueDiffers{Name: key}
		if inA {
			v.A = new(string(x))
		}
		if inB {
			v.B = new(string(y))
		}
		list = append(list, v)
	}
	return list
}

// comparePiece is how many bytes of a tensor are compared at a time. It is a multiple of the element size of every type.
const comparePiece = 1 << 20

// Tolerance is how far apart two floats may be and still count as the same: Abs + Rel*|second|, as in numpy.allclose, and
// NaN is the same as NaN. If both fields are 0, only equal bits are the same.
type Tolerance struct{ Abs, Rel float64 }

// floatSizes holds the floating-point types and the sizes of their elements.
var floatSizes = map[string]int{"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

// byteSizes holds the sizes of the other types' elements.
var byteSizes = map[string]int{"int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "complex64": 8}

// count adds the differences in a piece of a tensor.
func (d *TensorDiffers) count(x, y []byte, t Tolerance) {
	size, floats := floatSizes[d.DTypeA]
	if !floats {
		size = max(1, byteSizes[d.DTypeA]) // unknown types are compared byte by byte
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
func (d *TensorDiffers) number(a, b float64, t Tolerance) (apart bool) {
	within := t.Abs+t.Rel > 0 && (a == b || math.Abs(a-b) <= t.Abs+t.Rel*math.Abs(b) && !math.IsInf(b, 0) || a != a && b != b)
	distance := math.Abs(a - b)
	if math.IsNaN(distance) || math.IsInf(a, 0) || math.IsInf(b, 0) {
		if !within {
			d.NonFinite++
		}
		return !within
	}
	if within && distance == 0 { // 0 and -0
		return false
	}
	larger := max(math.Abs(a), math.Abs(b))
	raise(&d.maxAbs, distance)
	if larger > 0 {
		raise(&d.maxRel, distance/larger)
	}
	if within {
		return false
	}
	raise(&d.MaxAbs, distance)
	if larger > 0 {
		raise(&d.MaxRel, distance/larger)
	}
	return true
}

// raise makes *to at least v.
func raise(to **float64, v float64) {
	if math.IsInf(v, 0) { // the distance of two finite numbers may overflow
		v = math.MaxFloat64
	}
	if *to == nil || **to < v {
		*to = &v
	}
}

// floatsOf returns the numbers in data, exactly.
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
