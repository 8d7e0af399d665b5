package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// NPYConfig names two arrays that numpy.save has written.
type NPYConfig struct {
	Inputs string // [N], [N, K], or images [N, H, W] or [N, C, H, W]
	// Targets are either whole numbers: classes [N] or [N, 1], whose number is the largest plus 1, and whose largest must be below 65536 or
	// the number of rows; or floats: outputs [N] or [N, M].
	Targets string
}

// LoadNPY opens the rows of two .npy files, of format 1.0 to 3.0, little-endian and row-major, of
// booleans, integers, or floats of 32 or 64 bits. Numbers are converted to float32 without scaling. NaN and infinity are errors that
// name file, row and column. Arrays of float32 and uint8 are mapped, others are copied.
func LoadNPY(cfg NPYConfig) (_ Dataset, err error) {
	defer reading(&err, "npy")
	x, y, err := openNPYPair(cfg)
	if err != nil {
		return nil, err
	}
	t := &table{rows: x.rows(), files: []*mapping{x.file, y.file}}
	if err := t.setInputs(x); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Inputs, err)
	}
	if y.kind.float {
		err = t.setOutputs(y)
	} else {
		err = t.setLabels(y)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Targets, err)
	}
	return t, nil
}

// CheckNPY returns an error if a file cannot be opened, or if the headers of the two files say that they cannot be trained on together. It
// reports whether the targets are classes. It does not check the values.
func CheckNPY(cfg NPYConfig) (classes bool, err error) {
	defer reading(&err, "npy")
	_, y, err := openNPYPair(cfg)
	if err != nil {
		return false, err
	}
	return !y.kind.float, nil
}

// openNPYPair maps inputs and targets, and checks what their headers say.
func openNPYPair(cfg NPYConfig) (x, y *npy, err error) {
	if x, err = openNPY(cfg.Inputs); err != nil {
		return nil, nil, err
	}
	if y, err = openNPY(cfg.Targets); err != nil {
		return nil, nil, err
	}
	if x.rows() != y.rows() {
		return nil, nil, fmt.Errorf("%s has %d rows and %s %d: they do not belong together", cfg.Inputs, x.rows(), cfg.Targets, y.rows())
	}
	if err := x.checkInputs(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", cfg.Inputs, err)
	}
	check := y.checkLabels
	if y.kind.float {
		check = y.checkOutputs
	}
	if err := check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", cfg.Targets, err)
	}
	return x, y, nil
}

// openNPY maps the array at path.
func openNPY(path string) (*npy, error) {
	m, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	a, err := parseNPY(m.bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a.file = m
	return a, nil
}

func (a *npy) checkInputs() error {
	if a.columns() > maxInputs {
		return a.tooWide()
	}
	if len(a.shape) > 4 {
		return fmt.Errorf("inputs of the shape %v, want [N], [N, K], [N, H, W] or [N, C, H, W]", a.shape)
	}
	return nil
}

func (a *npy) checkOutputs() error {
	if len(a.shape) > 2 {
		return fmt.Errorf("outputs of the shape %v, want [N] or [N, M]", a.shape)
	}
	if a.columns() > maxInputs {
		return a.tooWide()
	}
	return nil
}

func (a *npy) checkLabels() error {
	if a.columns() != 1 {
		return fmt.Errorf("classes of the shape %v, want [N]; outputs are saved as floats", a.shape)
	}
	return nil
}

func (t *table) setInputs(a *npy) error {
	t.spec.Inputs = a.columns()
	switch d := a.shape; len(d) {
	case 3:
		t.spec.Image = Image{1, d[1], d[2]}
	case 4:
		t.spec.Image = Image{d[1], d[2], d[3]}
	}
	if a.kind.name == "uint8" {
		values := make([][256]float32, 1)
		for i := range values[0] {
			values[0][i] = float32(i)
		}
		t.x = pixels{bytes: a.data, stride: a.columns(), columns: a.columns(), values: values}
		return nil
	}
	v, err := a.floats()
	t.x = floats{v, a.columns()}
	return err
}

func (t *table) setOutputs(a *npy) (err error) {
	t.spec.Outputs = a.columns()
	t.y, err = a.floats()
	return err
}

func (t *table) setLabels(a *npy) error {
	classes := 0
	t.labels = make([]int32, t.rows)
	for i := range t.labels {
		label := a.integer(i)
		if label < 0 || label >= maxClasses {
			return fmt.Errorf("label %s of row %d is out of range, want 0 to %d", a.text(i), i, maxClasses-1)
		}
		t.labels[i] = int32(label)
		classes = max(classes, int(label)+1)
	}
	t.spec.Classes, t.spec.Labels = classes, 1
	return checkClasses(classes, t.rows)
}

// floats returns all elements as float32. If they are float32 it returns the array's own memory.
func (a *npy) floats() ([]float32, error) {
	var v []float32
	if a.kind.name == "float32" {
		v = numbersOf[float32](a.data)
	} else {
		v = make([]float32, a.rows()*a.columns())
		for i := range v {
			v[i] = a.float(i)
		}
	}
	for i, x := range v {
		if x-x != 0 { // true if x is not finite
			return nil, fmt.Errorf("%s in row %d, column %d: want finite numbers of float32", a.text(i), i/a.columns(), i%a.columns())
		}
	}
	return v, nil
}

func (a *npy) tooWide() error {
	return fmt.Errorf("rows of the shape %v have more than %d values", a.shape[1:], maxInputs)
}

func (a *npy) rows() int { return a.shape[0] }

func (a *npy) columns() int { return len(a.data) / a.kind.size / a.shape[0] }

// parseNPY returns the array in a file, as a view of it.
func parseNPY(file []byte) (*npy, error) {
	h, data, err := parseNPYHeader(file)
	if err != nil {
		return nil, err
	}
	kind, err := npyKindOf(h.descr)
	if err != nil {
		return nil, err
	}
	if h.fortran {
		return nil, errors.New("the array is stored by columns (fortran_order); save numpy.ascontiguousarray(a)")
	}
	size := kind.size
	for _, d := range h.shape {
		if d > 0 && size > math.MaxInt/d {
			return nil, fmt.Errorf("the shape %v is impossible", h.shape)
		}
		size *= d
	}
	if len(h.shape) == 0 || size == 0 {
		return nil, fmt.Errorf("the shape %v holds no rows", h.shape)
	}
	if size != len(data) {
		return nil, fmt.Errorf("%d bytes of data, but the shape %v of %s takes %d; copy the file again", len(data),
			h.shape, kind.name, size)
	}
	a := &npy{kind: kind, shape: h.shape, data: data}
	return a, a.checkBooleans()
}

// npy is a NumPy array.
type npy struct {
	kind  npyKind
	shape []int    // at least one dimension, none of them 0
	data  []byte   // little-endian, row-major; kind.size bytes for each element
	file  *mapping // the mapping that holds data
}

// npyKind is a type of elements.
type npyKind struct {
	descr string // in the file, without the byte order
	name  string // NumPy's
	size  int    // bytes of an element
	float bool
}

var npyKinds = []npyKind{
	{"f4", "float32", 4, true}, {"f8", "float64", 8, true}, {"b1", "bool", 1, false},
	{"i1", "int8", 1, false}, {"i2", "int16", 2, false}, {"i4", "int32", 4, false}, {"i8", "int64", 8, false},
	{"u1", "uint8", 1, false}, {"u2", "uint16", 2, false}, {"u4", "uint32", 4, false}, {"u8", "uint64", 8, false},
}

// npyKindOf parses a description such as "<f4". A type of one byte has no byte order: "|u1".
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

// checkBooleans refuses values that NumPy never writes.
func (a *npy) checkBooleans() error {
	if a.kind.descr != "b1" {
		return nil
	}
	for i, b := range a.data {
		if b > 1 {
			return fmt.Errorf("element %d is %d, but a boolean is 0 or 1; copy the file again, or save a.astype(%q)", i, b, "|u1")
		}
	}
	return nil
}

// bits returns element i without sign extension.
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

// integer returns element i of a kind that is not float. A value that int64 cannot hold becomes negative.
func (a *npy) integer(i int) int64 {
	bits := a.bits(i)
	if a.kind.descr[0] != 'i' {
		return int64(bits)
	}
	unused := 64 - 8*a.kind.size
	return int64(bits<<unused) >> unused
}

// float returns element i of any kind, rounded to float32.
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

// text returns element i for an error.
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
