package nn

// Matrix is a row-major matrix without padding: element (i, j) is Data[i*Cols+j]
// and len(Data) is Rows*Cols. Copies share Data.
type Matrix struct {
	Rows, Cols int
	Data       []float32
}

// NewMatrix returns a matrix of zeros.
func NewMatrix(rows, cols int) Matrix {
	return Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
}

// Row returns row i, a view.
func (m Matrix) Row(i int) []float32 {
	return m.Data[i*m.Cols : (i+1)*m.Cols : (i+1)*m.Cols]
}

// resize makes m rows x cols and keeps its memory where that is large enough. What the
// elements then hold is left over from before.
func (m *Matrix) resize(rows, cols int) {
	if size := rows * cols; cap(m.Data) < size {
		m.Data = make([]float32, size)
	} else {
		m.Data = m.Data[:size]
	}
	m.Rows, m.Cols = rows, cols
}

// sameShape panics unless a and b have equal shapes.
func sameShape(a, b Matrix) {
	if a.Rows != b.Rows || a.Cols != b.Cols {
		panic("nn: shapes of matrices differ")
	}
}
