//go:build !noasm

package vec

var avx2 = set{
	name:          "avx2",
	add:           addAVX2,
	addTo:         addToAVX2,
	mul:           mulAVX2,
	scale:         scaleAVX2,
	axpy:          axpyAVX2,
	add4:          add4AVX2,
	sum:           sumAVX2,
	dot:           dotAVX2,
	max:           maxAVX2,
	finite:        finiteAVX2,
	relu:          reluAVX2,
	reluGrad:      reluGradAVX2,
	gelu:          geluAVX2,
	geluGrad:      geluGradAVX2,
	tanh:          tanhAVX2,
	tanhGrad:      tanhGradAVX2,
	expSum:        expSumAVX2,
	softmaxGrad:   softmaxGradAVX2,
	moments:       momentsAVX2,
	normalize:     normalizeAVX2,
	normalizeSums: normalizeSumsAVX2,
	normalizeGrad: normalizeGradAVX2,
	sgd:           sgdAVX2,
	sgdMomentum:   sgdMomentumAVX2,
	adam:          adamAVX2,
	roundBFloat16: roundBFloat16Eights,
	toBFloat16:    toBFloat16Eights,
	fromBFloat16:  fromBFloat16Eights,
	roundFloat16:  roundFloat16Eights,
	toFloat16:     toFloat16Eights,
	fromFloat16:   fromFloat16Eights,
}

//go:noescape
func addAVX2(dst, x []float32)

//go:noescape
func addToAVX2(dst, x, y []float32)

//go:noescape
func mulAVX2(dst, x, y []float32)

//go:noescape
func scaleAVX2(dst []float32, a float32)

//go:noescape
func axpyAVX2(dst []float32, a float32, x []float32)

//go:noescape
func add4AVX2(dst, m []float32)

//go:noescape
func sumAVX2(x []float32) float64

//go:noescape
func dotAVX2(x, y []float32) float64

//go:noescape
func maxAVX2(x []float32) float32

//go:noescape
func finiteAVX2(x []float32) bool

//go:noescape
func reluAVX2(dst, x []float32)

//go:noescape
func reluGradAVX2(dst, y, dy []float32)

//go:noescape
func geluAVX2(dst, x []float32)

//go:noescape
func geluGradAVX2(dst, x, dy []float32)

//go:noescape
func tanhAVX2(dst, x []float32)

//go:noescape
func tanhGradAVX2(dst, y, dy []float32)

//go:noescape
func expSumAVX2(dst, x []float32, top float32) float64

//go:noescape
func softmaxGradAVX2(dst, y, dy []float32, dot float32)

//go:noescape
func momentsAVX2(x []float32) (sum, squares float64)

//go:noescape
func normalizeAVX2(dst, x, gain, bias []float32, mean, rstd float32)

//go:noescape
func normalizeSumsAVX2(dgain, dbias, x, dy, gain []float32, mean, rstd float32) (sum, dot float64)

//go:noescape
func normalizeGradAVX2(dx, x, dy, gain []float32, mean, rstd, a, b float32)

//go:noescape
func sgdAVX2(w, g []float32, lr, decay float32)

//go:noescape
func sgdMomentumAVX2(w, g, v []float32, s sgdStep)

//go:noescape
func adamAVX2(w, g, m, v []float32, s AdamStep)
