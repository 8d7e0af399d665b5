package vec

// SumRows adds every row of m, a matrix of len(dst) columns, to dst: the gradient of a bias. Each column is
// added up from the first row to the last.
func SumRows(dst, m []float32) {
	cols := len(dst)
	if cols == 0 && len(m) != 0 || cols != 0 && len(m)%cols != 0 {
		panic("vec: the matrix is not made of whole rows")
	}
	for len(m) >= 4*cols && len(m) > 0 {
		best.add4(dst, m[:4*cols])
		m = m[4*cols:]
	}
	for len(m) > 0 {
		best.add(dst, m[:cols])
		m = m[cols:]
	}
}

func add4(dst, m []float32) {
	n := len(dst)
	a, b, c, d := m[:n], m[n:2*n], m[2*n:3*n], m[3*n:4*n]
	for i, v := range dst {
		dst[i] = v + a[i] + b[i] + c[i] + d[i]
	}
}
