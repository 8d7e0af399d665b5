package data

// Batch holds rows of a data set. The zero value is ready; Fill keeps its memory.
type Batch struct {
	Rows   int
	X      []float32 // Rows x Spec.Inputs, row-major
	Y      []float32 // Rows x Spec.Outputs, row-major
	Labels []int     // Rows x Spec.Labels, row-major
}

// Fill makes b the given rows of d, in that order.
func (b *Batch) Fill(d Dataset, rows []int) {
	spec := d.Spec()
	b.Rows = len(rows)
	b.X = resized(b.X, len(rows)*spec.Inputs)
	b.Y = resized(b.Y, len(rows)*spec.Outputs)
	b.Labels = resized(b.Labels, len(rows)*spec.Labels)
	for i, row := range rows {
		d.Read(row,
			b.X[i*spec.Inputs:(i+1)*spec.Inputs],
			b.Y[i*spec.Outputs:(i+1)*spec.Outputs],
			b.Labels[i*spec.Labels:(i+1)*spec.Labels])
	}
}

func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
