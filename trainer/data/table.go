package data

import (
	"runtime"
)

// table is a data set of arrays, in memory or in mapped files.
type table struct {
	spec   Spec
	rows   int
	x      inputs
	y      []float32  // rows x Outputs
	labels []int32    // rows x Labels
	files  []*mapping // that the arrays lie in
}

// inputs are the rows x of a table.
type inputs interface {
	read(i int, x []float32)
	// hash adds the rows from first up to, not including, end.
	hash(h *stoppable, first, end int)
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

func (t *table) hash(h *stoppable, first, end int) {
	t.x.hash(h, first, end)
	h.Write(bytesOf(t.y[first*t.spec.Outputs : end*t.spec.Outputs]))
	h.Write(bytesOf(t.labels[first*t.spec.Labels : end*t.spec.Labels]))
	runtime.KeepAlive(t)
}

const badRow = "data: row out of range"

// floats are inputs as they are read.
type floats struct {
	values  []float32
	columns int
}

func (f floats) read(i int, x []float32) { copy(x, f.values[i*f.columns:(i+1)*f.columns]) }

func (f floats) hash(h *stoppable, first, end int) {
	h.Write(bytesOf(f.values[first*f.columns : end*f.columns]))
}

// pixels are inputs of one byte each, which are looked up when they are read: a quarter of the memory.
type pixels struct {
	bytes   []byte
	offset  int            // of the first pixel in a row's bytes
	stride  int            // bytes of a row
	columns int            // pixels of a row
	values  [][256]float32 // what a byte stands for, in each channel
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

func (p pixels) hash(h *stoppable, first, end int) {
	for c := range p.values {
		h.Write(bytesOf(p.values[c][:]))
	}
	h.Write(p.bytes[first*p.stride : end*p.stride])
}

// normalized are the values of bytes as torchvision's ToTensor and Normalize compute them, in float32:
// (byte/255 - mean) / deviation.
func normalized(mean, deviation float32) (values [256]float32) {
	for i := range values {
		values[i] = (float32(float32(i)/255) - mean) / deviation
	}
	return values
}
