package vec

// kernelSet is one implementation of every kernel. Kernels do not check lengths.
type kernelSet struct {
	name string

	add   func(dst, x []float32)
	addTo func(dst, x, y []float32)
	mul   func(dst, x, y []float32)
	scale func(dst []float32, a float32)
	axpy  func(dst []float32, a float32, x []float32)
	add4  func(dst, m []float32) // dst += each of the 4 rows of m, one after the other

	sum    func(x []float32) float64
	dot    func(x, y []float32) float64
	max    func(x []float32) float32
	finite func(x []float32) bool

	relu     func(dst, x []float32)
	reluGrad func(dst, y, dy []float32)
	gelu     func(dst, x []float32)
	geluGrad func(dst, x, dy []float32)
	tanh     func(dst, x []float32)
	tanhGrad func(dst, y, dy []float32)

	expSum      func(dst, x []float32, top float32) float64
	softmaxGrad func(dst, y, dy []float32, dot float32)

	moments       func(x []float32) (sum, squares float64) // of x - x[0], for len(x) > 0
	normalize     func(dst, x, gain, bias []float32, mean, rstd float32)
	normalizeSums func(dgain, dbias, x, dy, gain []float32, mean, rstd float32) (sum, dot float64)
	normalizeGrad func(dx, x, dy, gain []float32, mean, rstd, a, b float32)

	sgd         func(w, g []float32, lr, decay float32)
	sgdMomentum func(w, g, v []float32, s sgdStep)
	adam        func(w, g, m, v []float32, s AdamStep)
}

// plain is every kernel as a loop in Go. It runs on CPUs without assembly, and assembly is tested against it.
var plain = kernelSet{
	name: "go",
	add:  add, addTo: addTo, mul: mul, scale: scale, axpy: axpy, add4: add4,
	sum: sum, dot: dot, max: largest, finite: finite,
	relu: relu, reluGrad: reluGrad,
	gelu: gelu, geluGrad: geluGrad, tanh: tanh, tanhGrad: tanhGrad,
	expSum: expSum, softmaxGrad: softmaxGrad,
	moments: moments, normalize: normalize, normalizeSums: normalizeSums, normalizeGrad: normalizeGrad,
	sgd: sgd, sgdMomentum: sgdMomentum, adam: adam,
}

// best is the fastest set for this CPU.
var best = choose()

func choose() kernelSet {
	if sets := assembly(); len(sets) > 0 && !race {
		return *sets[0]
	}
	return plain
}

const badLength = "vec: slice lengths do not match"

// piece is how many elements one call of a kernel handles: Go cannot interrupt assembly, and the garbage collector waits
// for it.
const piece = 1 << 17

// each2 runs kernel over a and b in pieces.
func each2(kernel func(a, b []float32), a, b []float32) {
	if len(b) != len(a) {
		panic(badLength)
	}
	for len(a) > piece {
		kernel(a[:piece], b[:piece])
		a, b = a[piece:], b[piece:]
	}
	kernel(a, b)
}

// each3 runs kernel over a, b and c in pieces.
func each3(kernel func(a, b, c []float32), a, b, c []float32) {
	if len(b) != len(a) || len(c) != len(a) {
		panic(badLength)
	}
	for len(a) > piece {
		kernel(a[:piece], b[:piece], c[:piece])
		a, b, c = a[piece:], b[piece:], c[piece:]
	}
	kernel(a, b, c)
}
