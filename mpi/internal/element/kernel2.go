package element

// Kernel2 is a Kernel that stores the result twice in one pass: dst[i] = dst2[i] = a[i] op b[i].
// dst and dst2 do not overlap; each is exactly a, or exactly b, or overlaps neither a nor b. So two
// ranks' arrays can both be replaced by their sum, without a copy.
//
// It panics if the lengths differ, and allocates nothing.
type Kernel2 func(dst, dst2, a, b []byte)

// Kernel2Of finds the Kernel2 of op for t, if there is one: for sums of floats of 32 and 64 bits and of complex numbers, on
// CPUs that it is written in assembly for. Elsewhere there are the kernel and a copy.
func Kernel2Of(t Type, op Op) (Kernel2, bool) {
	if !t.Valid() || op != Sum && op != Avg && op != PreMulSum {
		return nil, false
	}
	return pairs[t], pairs[t] != nil
}

var pairs = best.pairs()

func (s set) pairs() (kernels [len(types)]Kernel2) {
	if s.pair32 != nil {
		kernels[Float32] = blockwise2(s.pair32, sum[float32])
		kernels[Float64] = blockwise2(s.pair64, sum[float64])
		kernels[Complex64], kernels[Complex128] = kernels[Float32], kernels[Float64]
	}
	return kernels
}

// blockwise2 is the kernel that has routine do whole blocks, and plain the rest.
func blockwise2(routine func(dst, dst2, a, b *byte, n int), plain Kernel) Kernel2 {
	return func(dst, dst2, a, b []byte) {
		if len(dst2) != len(dst) || len(a) != len(dst) || len(b) != len(dst) {
			panic(badLength)
		}
		for whole(len(dst)) > 0 {
			n := piece(len(dst))
			reads(a[:n])
			reads(b[:n])
			writes(dst[:n])
			writes(dst2[:n])
			routine(&dst[0], &dst2[0], &a[0], &b[0], n)
			dst, dst2, a, b = dst[n:], dst2[n:], a[n:], b[n:]
		}
		plain(dst, a, b)
		copy(dst2, dst)
	}
}
