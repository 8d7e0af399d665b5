package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// comparePiece is how many bytes of a tensor are compared at a time: whole elements of every type.
const comparePiece = 1 << 20

// tensorDiffer is how a tensor of two checkpoints differs.
type tensorDiffer struct {
	Name      string   `json:"name"`
	DTypeA    string   `json:"dtype_a"`
	DTypeB    string   `json:"dtype_b"`
	ShapeA    []int    `json:"shape_a"`
	ShapeB    []int    `json:"shape_b"`
	Elements  int64    `json:"elements"`   // compared; 0: type or shape differ
	Differ    int64    `json:"differ"`     // of them
	NonFinite int64    `json:"non_finite"` // of those: NaN or infinity on either side
	MaxAbs    *float64 `json:"max_abs"`    // over finite ones that differ; nil: there are none, or they are no floats
	MaxRel    *float64 `json:"max_rel"`    // of the larger of the two
}

// is says in a word or two what differs.
func (d tensorDiffer) is() string {
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

// compare holds two sides against each other, tensor by tensor, in little memory.
func compare(ctx context.Context, a, b *side, t tolerance) (*difference, error) {
	align(a, b)
	d := &difference{OnlyA: []string{}, OnlyB: []string{}, Tensors: []tensorDiffer{}, Values: differingValues(a, b)}
	buffers := [2][]byte{make([]byte, comparePiece), make([]byte, comparePiece)}
	i, j := 0, 0
	for i < len(a.tensors) || j < len(b.tensors) {
		order := 0
		switch {
		case i == len(a.tensors):
			order = 1
		case j == len(b.tensors):
			order = -1
		default:
			order = strings.Compare(a.tensors[i].name, b.tensors[j].name)
		}
		switch {
		case order < 0:
			d.OnlyA = append(d.OnlyA, a.tensors[i].name)
			i++
		case order > 0:
			d.OnlyB = append(d.OnlyB, b.tensors[j].name)
			j++
		default:
			found, err := compareTensor(ctx, a.tensors[i], b.tensors[j], t, buffers)
			if err != nil {
				return nil, err
			}
			if found == nil {
				d.Equal++
			} else {
				d.Tensors = append(d.Tensors, *found)
			}
			i, j = i+1, j+1
		}
	}
	d.Same = len(d.OnlyA)+len(d.OnlyB)+len(d.Tensors)+len(d.Values) == 0
	return d, nil
}

// compareTensor returns nil where the two are the same.
func compareTensor(ctx context.Context, a, b sideTensor, t tolerance, buffers [2][]byte) (*tensorDiffer, error) {
	d := &tensorDiffer{Name: a.name, DTypeA: a.dtype, DTypeB: b.dtype, ShapeA: a.shape, ShapeB: b.shape}
	if a.dtype != b.dtype || !slices.Equal(a.shape, b.shape) || a.bytes != b.bytes {
		return d, nil
	}
	d.Elements = 1
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
	if d.Differ == 0 {
		return nil, nil
	}
	return d, nil
}

// differingValues are the small facts that two checkpoints do not share; a file has none to compare.
func differingValues(a, b *side) []valueDiffer {
	list := []valueDiffer{}
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
		v := valueDiffer{Name: key}
		if text := string(x); inA {
			v.A = &text
		}
		if text := string(y); inB {
			v.B = &text
		}
		list = append(list, v)
	}
	return list
}
