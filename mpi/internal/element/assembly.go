package element

// available holds the assembly routines that this CPU can run.
var available = assembly()

// routineSet holds routines in assembly; nil for those that do not exist. Routines work on n bytes, a positive multiple of
// blockBytes, at any address. They do not check their arguments.
type routineSet struct {
	sum      sums
	pair32   func(dst, dst2, a, b *byte, n int) // the sum of float32, stored twice
	pair64   func(dst, dst2, a, b *byte, n int)
	divide32 func(dst *byte, n int, by float32)
	divide64 func(dst *byte, n int, by float64)
}

// sums are routines by Type that add: dst[i] = a[i] + b[i] over n bytes.
type sums [len(types)]func(dst, a, b *byte, n int)

// applyTo returns t with its kernels replaced by those that s has.
func (s routineSet) applyTo(t kernelTable) kernelTable {
	for typ, routine := range s.sum {
		if routine == nil {
			continue
		}
		kernel := blockwise(routine, t[typ][Sum])
		t[typ][Sum], t[typ][Avg], t[typ][PreMulSum] = kernel, kernel, kernel
	}
	return t
}

// blockwise returns a kernel that uses routine for whole blocks, and plain for the rest.
func blockwise(routine func(dst, a, b *byte, n int), plain Kernel) Kernel {
	return func(dst, a, b []byte) {
		if len(a) != len(dst) || len(b) != len(dst) {
			panic(badLength)
		}
		for wholeBlocks(len(dst)) > 0 {
			n := piece(len(dst))
			reads(a[:n])
			reads(b[:n])
			writes(dst[:n])
			routine(&dst[0], &a[0], &b[0], n)
			dst, a, b = dst[n:], a[n:], b[n:]
		}
		plain(dst, a, b)
	}
}

func (s routineSet) pairs() (kernels [len(types)]Kernel2) {
	if s.pair32 != nil {
		kernels[Float32] = blockwise2(s.pair32, sum[float32])
		kernels[Float64] = blockwise2(s.pair64, sum[float64])
		kernels[Complex64], kernels[Complex128] = kernels[Float32], kernels[Float64]
	}
	return kernels
}

// blockwise2 returns a kernel that uses routine for whole blocks, and plain for the rest.
func blockwise2(routine func(dst, dst2, a, b *byte, n int), plain Kernel) Kernel2 {
	return func(dst, dst2, a, b []byte) {
		if len(dst2) != len(dst) || len(a) != len(dst) || len(b) != len(dst) {
			panic(badLength)
		}
		for wholeBlocks(len(dst)) > 0 {
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

// blockBytes is the number of bytes that routines process at a time: a multiple of every element's size.
const blockBytes = 64

// maxPiece is the most bytes for one call of a routine: Go cannot interrupt it, and the garbage collector waits for it.
const maxPiece = 1 << 20

// piece is how many of n bytes one call of a routine processes.
func piece(n int) int { return min(wholeBlocks(n), maxPiece) }

// wholeBlocks is how many of n bytes are in whole blocks.
func wholeBlocks(n int) int { return n - n%blockBytes }
