package element

// The 16-bit floats are combined as float32 and rounded after each step. For one sum, product or quotient that is the
// result rounded once: float32 has more than twice their bits (S. Figueroa, "When is double rounding innocuous?",
// 1995), apart from products and quotients of bfloat16 that are subnormal as float32, too.

func sumF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToFloat16(x[i].Float32() + y[i].Float32())
	}
}

func productF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToFloat16(x[i].Float32() * y[i].Float32())
	}
}

func minF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToFloat16(min(x[i].Float32(), y[i].Float32()))
	}
}

func maxF16(dst, a, b []byte) {
	d, x, y := operands[F16](dst, a, b)
	for i := range d {
		d[i] = ToFloat16(max(x[i].Float32(), y[i].Float32()))
	}
}

func sumBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBFloat16(x[i].Float32() + y[i].Float32())
	}
}

func productBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBFloat16(x[i].Float32() * y[i].Float32())
	}
}

func minBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBFloat16(min(x[i].Float32(), y[i].Float32()))
	}
}

func maxBF16(dst, a, b []byte) {
	d, x, y := operands[BF16](dst, a, b)
	for i := range d {
		d[i] = ToBFloat16(max(x[i].Float32(), y[i].Float32()))
	}
}
