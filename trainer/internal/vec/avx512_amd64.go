//go:build !noasm

package vec

var avx512 = set{
	name:          "avx512",
	add:           addAVX512,
	addTo:         addToAVX512,
	mul:           mulAVX512,
	scale:         scaleAVX512,
	axpy:          axpyAVX512,
	add4:          add4AVX512,
	sum:           sumAVX512,
	dot:           dotAVX512,
	max:           maxAVX512,
	finite:        finiteAVX512,
	relu:          reluAVX512,
	reluGrad:      reluGradAVX512,
	gelu:          geluAVX512,
	geluGrad:      geluGradAVX512,
	tanh:          tanhAVX512,
	tanhGrad:      tanhGradAVX512,
	expSum:        expSumAVX512,
	softmaxGrad:   softmaxGradAVX512,
	moments:       momentsAVX512,
	normalize:     normalizeAVX512,
	normalizeSums: normalizeSumsAVX512,
	normalizeGrad: normalizeGradAVX512,
	sgd:           sgdAVX512,
	sgdMomentum:   sgdMomentumAVX512,
	adam:          adamAVX512,
	roundBFloat16: roundBFloat16Eights,
	toBFloat16:    toBFloat16Eights,
	fromBFloat16:  fromBFloat16Eights,
	roundFloat16:  roundFloat16Eights,
	toFloat16:     toFloat16Eights,
	fromFloat16:   fromFloat16Eights,
}

//go:noescape
func addAVX512(dst, x []float32)

//go:noescape
func addToAVX512(dst, x, y []float32)

//go:noescape
func mulAVX512(dst, x, y []float32)

//go:noescape
func scaleAVX512(dst []float32, a float32)

//go:noescape
func axpyAVX512(dst []float32, a float32, x []float32)

//go:noescape
func add4AVX512(dst, m []float32)

//go:noescape
func sumAVX512(x []float32) float64

//go:noescape
func dotAVX512(x, y []float32) float64

//go:noescape
func maxAVX512(x []float32) float32

//go:noescape
func finiteAVX512(x []float32) bool

//go:noescape
func reluAVX512(dst, x []float32)

//go:noescape
func reluGradAVX512(dst, y, dy []float32)

//go:noescape
func geluAVX512(dst, x []float32)

//go:noescape
func geluGradAVX512(dst, x, dy []float32)

//go:noescape
func tanhAVX512(dst, x []float32)

//go:noescape
func tanhGradAVX512(dst, y, dy []float32)

//go:noescape
func expSumAVX512(dst, x []float32, top float32) float64

//go:noescape
func softmaxGradAVX512(dst, y, dy []float32, dot float32)

//go:noescape
func momentsAVX512(x []float32) (sum, squares float64)

//go:noescape
func normalizeAVX512(dst, x, gain, bias []float32, mean, rstd float32)

//go:noescape
func normalizeSumsAVX512(dgain, dbias, x, dy, gain []float32, mean, rstd float32) (sum, dot float64)

//go:noescape
func normalizeGradAVX512(dx, x, dy, gain []float32, mean, rstd, a, b float32)

//go:noescape
func sgdAVX512(w, g []float32, lr, decay float32)

//go:noescape
func sgdMomentumAVX512(w, g, v []float32, s sgdStep)

//go:noescape
func adamAVX512(w, g, m, v []float32, s AdamStep)
