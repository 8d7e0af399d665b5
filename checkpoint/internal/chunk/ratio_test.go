package chunk_test

import (
	"math/rand/v2"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"
)

// The limits of the first two are what ZipNN was measured to reach on such data. Those of Adam's moments and of
// float32 that holds bfloat16 are the package's targets. Those of differences are what Huffman codes alone or zstd
// alone were measured to reach, the better of the two; for the smallest a tenth more, since it has few bytes to be
// sure of.
var ratios = map[string]float64{
	"float32":         0.8313,
	"bfloat16":        0.6623,
	"adam_m":          0.86,
	"adam_v":          0.84,
	"bf16_in_f32":     0.34,
	"delta_f32_1e-6":  0.479,
	"delta_f32_1e-5":  0.566,
	"delta_f32_1e-4":  0.661,
	"delta_bf16_1e-6": 0.044,
	"delta_bf16_1e-5": 0.142,
	"delta_bf16_1e-4": 0.319,
	"incompressible":  1,
}

// spread is how far the ratio of 2 MiB may be from that of endless data: the information in 512 Ki exponents has a
// relative standard deviation of about 0.0008, in 1 Mi 0.0006, and they take 8 % and 16 % of the raw size.
const spread = 0.0003

func TestRatios(t *testing.T) {
	e := newEncoder(t, chunk.Auto)
	for _, k := range chunktest.Kinds() {
		size := 2 * chunk.MaxBytes
		if k.Name == "float32" || k.Name == "bfloat16" { // of which the limits are closest
			size = 8 * chunk.MaxBytes
		}
		data, base := k.Make(rand.New(rand.NewPCG(1, 1)), size/k.Layout.Width)
		_, stored := encodeAll(e, data, base, k.Layout)
		got, limit := float64(stored)/float64(len(data)), ratios[k.Name]
		t.Logf("%s: %.4f", k.Name, got)
		if limit == 0 || got > min(limit+spread, 1) {
			t.Errorf("%s: %.4f of the raw size, at most %.4f expected", k.Name, got, limit)
		}
	}
}
