package data

// Dataset is a table of samples: inputs, and for each either a class or outputs.
type Dataset interface {
	// Len is the number of rows.
	Len() int
	// Spec says what a row is made of.
	Spec() Spec
	// Read copies row i: its inputs into x, which has Spec().Inputs elements, and its outputs into y,
	// which has Spec().Outputs. It returns the row's class, 0 where there are none.
	Read(i int, x, y []float32) (label int)
}

// Spec describes the rows of a data set. Either Outputs or Classes is 0.
type Spec struct {
	Inputs  int // columns of x
	Outputs int // columns of y, for regression
	Classes int // labels are in [0, Classes), for classification
}

// Batch holds rows of a data set. The zero value is ready; Fill keeps its memory.
type Batch struct {
	Rows   int
	X      []float32 // Rows x Spec.Inputs, row-major
	Y      []float32 // Rows x Spec.Outputs, row-major
	Labels []int     // one for each row; 0 without classes
}

// Fill makes b the given rows of d, in that order.
func (b *Batch) Fill(d Dataset, rows []int) {
	spec := d.Spec()
	b.Rows = len(rows)
	b.X = resized(b.X, len(rows)*spec.Inputs)
	b.Y = resized(b.Y, len(rows)*spec.Outputs)
	b.Labels = resized(b.Labels, len(rows))
	for i, row := range rows {
		x := b.X[i*spec.Inputs : (i+1)*spec.Inputs]
		y := b.Y[i*spec.Outputs : (i+1)*spec.Outputs]
		b.Labels[i] = d.Read(row, x, y)
	}
}

func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
