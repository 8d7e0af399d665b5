package data

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"runtime"
	"unsafe"
)

// table is a data set of arrays, in memory or in mapped files.
type table struct {
	spec   Spec
	rows   int
	x      inputs
	y      []float32  // rows x Outputs
	labels []int32    // rows x Labels
	files  []*mapping // the mappings that hold the arrays
}

// inputs are the rows x of a table.
type inputs interface {
	read(i int, x []float32)
	// hash adds the rows from first to before end.
	hash(h *stoppableHash, first, end int)
}

func (t *table) Len() int { return t.rows }

func (t *table) Spec() Spec { return t.spec }

func (t *table) Read(i int, x, y []float32, labels []int) {
	if i < 0 || i >= t.rows {
		panic(badRow)
	}
	t.x.read(i, x)
	copy(y, t.y[i*t.spec.Outputs:(i+1)*t.spec.Outputs])
	for j, label := range t.labels[i*t.spec.Labels : (i+1)*t.spec.Labels] {
		labels[j] = int(label)
	}
	runtime.KeepAlive(t)
}

func (t *table) hash(h *stoppableHash, first, end int) {
	t.x.hash(h, first, end)
	h.Write(bytesOf(t.y[first*t.spec.Outputs : end*t.spec.Outputs]))
	h.Write(bytesOf(t.labels[first*t.spec.Labels : end*t.spec.Labels]))
	runtime.KeepAlive(t)
}

const badRow = "data: row out of range"

// floats are inputs that need no conversion.
type floats struct {
	values  []float32
	columns int
}

func (f floats) read(i int, x []float32) { copy(x, f.values[i*f.columns:(i+1)*f.columns]) }

func (f floats) hash(h *stoppableHash, first, end int) {
	h.Write(bytesOf(f.values[first*f.columns : end*f.columns]))
}

// pixels are inputs of one byte each, which are converted by a table when they are read. They take a quarter of the memory.
type pixels struct {
	bytes   []byte
	offset  int            // of the first pixel in a row's bytes
	stride  int            // bytes of a row
	columns int            // pixels of a row
	values  [][256]float32 // the value of each byte, for each channel
}

func (p pixels) read(i int, x []float32) {
	row := p.bytes[i*p.stride+p.offset:][:p.columns]
	plane := p.columns / len(p.values)
	for c := range p.values {
		values := &p.values[c]
		to := x[c*plane:][:plane]
		for j, b := range row[c*plane:][:plane] {
			to[j] = values[b]
		}
	}
}

func (p pixels) hash(h *stoppableHash, first, end int) {
	for c := range p.values {
		h.Write(bytesOf(p.values[c][:]))
	}
	h.Write(p.bytes[first*p.stride : end*p.stride])
}

// normalized returns the values of all bytes as torchvision's ToTensor and Normalize compute them, in float32:
// (byte/255 - mean) / deviation.
func normalized(mean, deviation float32) (values [256]float32) {
	for i := range values {
		values[i] = (float32(float32(i)/255) - mean) / deviation
	}
	return values
}

// number is an element type of arrays in files.
type number interface{ float32 | int32 }

// numbersOf returns the little-endian numbers in b: b's own memory if its alignment allows that, else a copy. It leaves out an incomplete
// number at the end.
func numbersOf[T number](b []byte) []T {
	n := len(b) / 4
	if n == 0 {
		return nil
	}
	if p := unsafe.Pointer(unsafe.SliceData(b)); uintptr(p)%4 == 0 {
		return unsafe.Slice((*T)(p), n)
	}
	v := make([]T, n)
	// An error is possible only for types without a fixed size.
	_, _ = binary.Decode(b[:4*n], binary.LittleEndian, v)
	return v
}

// bytesOf returns the memory of v. It is little-endian on all machines on which ranks can form a group (see mpi.Init).
func bytesOf[T number](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// hasher is a data set that can add the memory of its rows from first to before end to a hash.
type hasher interface {
	hash(h *stoppableHash, first, end int)
}

// Digest returns a hash of all rows of d in order. Equal digests mean equal data, wherever the copies are stored.
// Data sets of this package are hashed in the form that they have in memory, at
// the speed of SHA-256: bytes together with their values, a text as its bytes. Other data sets are read row by row; their
// digests are comparable only with each other. Hashing a large sparse file may take hours: Digest returns early, with ctx's cause, once ctx
// is done.
func Digest(ctx context.Context, d Dataset) ([sha256.Size]byte, error) {
	spec := d.Spec()
	h := &stoppableHash{sha256.New(), ctx}
	var text []byte
	for _, n := range []int{
		d.Len(), spec.Inputs, spec.Outputs, spec.Classes, spec.Labels, spec.Symbols,
		spec.Image.Channels, spec.Image.Height, spec.Image.Width,
	} {
		text = binary.LittleEndian.AppendUint64(text, uint64(n))
	}
	h.Write(text)
	hashRows(h, d, 0, d.Len())
	if ctx.Err() != nil {
		return [sha256.Size]byte{}, fmt.Errorf("hash the data: %w", context.Cause(ctx))
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// stoppableHash is a hash that ignores further data once its context is done.
type stoppableHash struct {
	hash.Hash
	ctx context.Context
}

// Write never fails, like that of any hash.
func (s *stoppableHash) Write(b []byte) (int, error) {
	const piece = 16 << 20 // bytes: some 10 ms
	for left := b; len(left) > 0 && s.ctx.Err() == nil; {
		n := min(len(left), piece)
		s.Hash.Write(left[:n])
		left = left[n:]
	}
	return len(b), nil
}

func hashRows(h *stoppableHash, d Dataset, first, end int) {
	if d, ok := d.(hasher); ok {
		d.hash(h, first, end)
		return
	}
	spec := d.Spec()
	values := make([]float32, spec.Inputs+spec.Outputs)
	labels := make([]int, spec.Labels)
	var text []byte
	for i := first; i < end && h.ctx.Err() == nil; i++ {
		d.Read(i, values[:spec.Inputs], values[spec.Inputs:], labels)
		h.Write(bytesOf(values))
		text = text[:0]
		for _, label := range labels {
			text = binary.LittleEndian.AppendUint64(text, uint64(label))
		}
		h.Write(text)
	}
}
