package data

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"ddpbatch/internal/redact"
)

// maxInputs bounds the values of a row: a batch has as many float32 for each of its rows. A picture of
// 4096 x 4096 has that many.
const maxInputs = 1 << 24

// Dataset is a table of samples: inputs, and for each either classes or outputs. It must be safe for concurrent
// reading.
type Dataset interface {
	// Len returns the number of rows.
	Len() int
	// Spec describes the rows.
	Spec() Spec
	// Read copies row i: its inputs into x, its outputs into y, its labels into labels, which have
	// Spec().Inputs, Spec().Outputs and Spec().Labels elements. It must neither wait nor
	// fail: nothing could end the wait, and it cannot return an error.
	Read(i int, x, y []float32, labels []int)
}

// Spec describes the rows of a data set. Either Outputs or Classes is 0.
type Spec struct {
	Inputs  int   // columns of x
	Outputs int   // columns of y, for regression
	Classes int   // labels are in [0, Classes), for classification
	Labels  int   // labels of a row: 1 for classification, one for every symbol of a text, 0 for regression
	Image   Image // the shape of x, if it is an image; else zero
	Symbols int   // for a text: x holds symbol numbers in [0, Symbols); else 0
}

// Image is the shape of a row that is an image: Channels x Height x Width values, channel by
// channel, row by row (PyTorch's CHW).
type Image struct{ Channels, Height, Width int }

// Batch holds rows of a data set. The zero value is ready to use; Fill reuses its memory.
type Batch struct {
	Rows   int
	X      []float32 // Rows x Spec.Inputs, row-major
	Y      []float32 // Rows x Spec.Outputs, row-major
	Labels []int     // Rows x Spec.Labels, row-major
}

// Fill fills b with the given rows of d, in that order.
func (b *Batch) Fill(d Dataset, rows []int) {
	spec := d.Spec()
	b.Rows = len(rows)
	x, y, labels := len(rows)*spec.Inputs, len(rows)*spec.Outputs, len(rows)*spec.Labels
	b.X, b.Y, b.Labels = slices.Grow(b.X[:0], x)[:x], slices.Grow(b.Y[:0], y)[:y], slices.Grow(b.Labels[:0], labels)[:labels]
	for i, row := range rows {
		d.Read(row,
			b.X[i*spec.Inputs:(i+1)*spec.Inputs],
			b.Y[i*spec.Outputs:(i+1)*spec.Outputs],
			b.Labels[i*spec.Labels:(i+1)*spec.Labels])
	}
}

// Range is the rows from First to before End.
type Range struct{ First, End int }

// ParseRange parses "FIRST:END", such as "0:9000": the rows from FIRST to before END. Both numbers are required, and
// the range must not be empty.
func ParseRange(s string) (Range, error) {
	first, end, found := strings.Cut(s, ":")
	if !found {
		return Range{}, fmt.Errorf("range %s: write it as FIRST:END, such as 0:9000", redact.Quoted(s, redact.Shown))
	}
	var r Range
	for _, part := range []struct {
		text string
		to   *int
	}{{first, &r.First}, {end, &r.End}} {
		// Atoi would accept a sign.
		n, err := strconv.ParseUint(part.text, 10, 31)
		if err != nil {
			return Range{}, fmt.Errorf("range %s: %s is not a row number from 0 to 2147483647",
				redact.Quoted(s, redact.Shown), redact.Quoted(part.text, redact.Shown))
		}
		*part.to = int(n)
	}
	if r.First >= r.End {
		return Range{}, fmt.Errorf("range %s is empty: the second number is the row after the last", redact.Quoted(s, redact.Shown))
	}
	return r, nil
}

func (r Range) String() string { return fmt.Sprintf("%d:%d", r.First, r.End) }

// reading is deferred by functions that open a kind of data, and puts that before their error.
func reading(err *error, kind string) {
	if *err != nil {
		*err = fmt.Errorf("read %s: %w", kind, *err)
	}
}

type subset struct {
	Dataset
	r Range
}

// Subset returns the rows r of d, numbered from 0, as a view of d.
func Subset(d Dataset, r Range) (Dataset, error) {
	if r.First < 0 || r.First >= r.End {
		return nil, fmt.Errorf("range %v holds no rows", r)
	}
	if r.End > d.Len() {
		return nil, fmt.Errorf("range %v goes beyond the data, which has %d rows", r, d.Len())
	}
	return subset{d, r}, nil
}

func (s subset) Len() int { return s.r.End - s.r.First }

func (s subset) Read(i int, x, y []float32, labels []int) {
	if i < 0 || i >= s.Len() {
		panic(badRow)
	}
	s.Dataset.Read(s.r.First+i, x, y, labels)
}

func (s subset) hash(h *stoppableHash, first, end int) {
	hashRows(h, s.Dataset, s.r.First+first, s.r.First+end)
}

// concat is several data sets of one kind, one after another.
type concat struct {
	parts []*table
	ends  []int // the row after the last of each part
}

func newConcat(parts []*table) *concat {
	c := &concat{parts: parts}
	rows := 0
	for _, p := range parts {
		rows += p.rows
		c.ends = append(c.ends, rows)
	}
	return c
}

func (c *concat) Len() int { return c.ends[len(c.ends)-1] }

func (c *concat) Spec() Spec { return c.parts[0].spec }

func (c *concat) Read(i int, x, y []float32, labels []int) {
	if i < 0 || i >= c.Len() {
		panic(badRow)
	}
	k := sort.SearchInts(c.ends, i+1)
	c.parts[k].Read(i-c.first(k), x, y, labels)
}

// first returns the row that part k begins with.
func (c *concat) first(k int) int { return c.ends[k] - c.parts[k].rows }

func (c *concat) hash(h *stoppableHash, first, end int) {
	for k, p := range c.parts {
		from, to := max(first, c.first(k)), min(end, c.ends[k])
		if from < to {
			p.hash(h, from-c.first(k), to-c.first(k))
		}
	}
}
