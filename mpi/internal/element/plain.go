package element

// plain is every kernel as a loop in Go: what runs where there is no assembly
// for it, and what assembly is tested against.
var plain = table{
	Float32:    ordered[float32](),
	Float64:    ordered[float64](),
	Int8:       integers[int8](),
	Int16:      integers[int16](),
	Int32:      integers[int32](),
	Int64:      integers[int64](),
	Uint8:      integers[uint8](),
	Uint16:     integers[uint16](),
	Uint32:     integers[uint32](),
	Uint64:     integers[uint64](),
	Float16:    averaged(ops{Sum: sumF16, Min: minF16, Max: maxF16, Product: productF16}),
	BFloat16:   averaged(ops{Sum: sumBF16, Min: minBF16, Max: maxBF16, Product: productBF16}),
	Complex64:  averaged(ops{Sum: sum[complex64], Product: product[complex64]}),
	Complex128: averaged(ops{Sum: sum[complex128], Product: product[complex128]}),
	Bool:       {Sum: or, Max: or, BOr: or, Product: and, Min: and, BAnd: and, BXor: xor},
}

func ordered[T integer | float]() ops {
	return averaged(ops{Sum: sum[T], Min: least[T], Max: greatest[T], Product: product[T]})
}

func integers[T integer]() ops {
	kernels := ordered[T]()
	kernels[BAnd], kernels[BOr], kernels[BXor] = bitAnd, bitOr, bitXor
	return kernels
}

// averaged adds the operations that are sums with something before or after.
func averaged(kernels ops) ops {
	kernels[Avg], kernels[PreMulSum] = kernels[Sum], kernels[Sum]
	return kernels
}
