package element

// Integers wrap around.

func sum[T integer | float | complex64 | complex128](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

// product of complex numbers may differ in the last bit between architectures:
// where the CPU multiplies and adds in one instruction, Go uses that (its specification, "Floating-point operators").
func product[T integer | float | complex64 | complex128](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = x[i] * y[i]
	}
}

// least, as Go's min, gives NaN if either is one, and takes -0 for less than 0.
func least[T integer | float](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = min(x[i], y[i])
	}
}

// greatest follows the same rules.
func greatest[T integer | float](dst, a, b []byte) {
	d, x, y := operands[T](dst, a, b)
	for i := range d {
		d[i] = max(x[i], y[i])
	}
}
