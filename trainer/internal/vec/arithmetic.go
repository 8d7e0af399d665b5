package vec

// Add is dst += x.
func Add(dst, x []float32) { each2(best.add, dst, x) }

// AddTo is dst = x + y.
func AddTo(dst, x, y []float32) { each3(best.addTo, dst, x, y) }

// Mul is dst = x * y, element by element.
func Mul(dst, x, y []float32) { each3(best.mul, dst, x, y) }

// Scale is dst *= a.
func Scale(dst []float32, a float32) {
	for len(dst) > piece {
		best.scale(dst[:piece], a)
		dst = dst[piece:]
	}
	best.scale(dst, a)
}

// Axpy is dst += a x. The product is rounded before it is added.
func Axpy(dst []float32, a float32, x []float32) {
	if len(x) != len(dst) {
		panic(badLength)
	}
	for len(dst) > piece {
		best.axpy(dst[:piece], a, x[:piece])
		dst, x = dst[piece:], x[piece:]
	}
	best.axpy(dst, a, x)
}

func add(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}

func addTo(dst, x, y []float32) {
	for i, v := range x {
		dst[i] = v + y[i]
	}
}

func mul(dst, x, y []float32) {
	for i, v := range x {
		dst[i] = v * y[i]
	}
}

func scale(dst []float32, a float32) {
	for i := range dst {
		dst[i] *= a
	}
}

func axpy(dst []float32, a float32, x []float32) {
	for i, v := range x {
		dst[i] += float32(a * v)
	}
}
