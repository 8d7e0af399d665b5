package chunk

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestCostsAreTheLogarithms(t *testing.T) {
	for n, got := range costs {
		want := 0.0
		if n > 0 {
			want = float64(n) * math.Log2(float64(n)) * (1 << costBits)
		}
		// The logarithm is rounded down at logBits bits, after squarings each of which loses the 31st bit.
		if d := want - float64(got); d < -1 || d > 1+2*float64(n)/(1<<(logBits-costBits)) {
			t.Fatalf("costs[%d] = %d, want %.1f", n, got, want)
		}
	}
}

// The estimate of a plane's size is close to its entropy, for distributions with a known entropy.
func TestPlaneEstimateIsNearTheEntropy(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name    string
		draw    func() byte
		entropy float64 // bits per byte
		codec   PlaneCodec
	}{
		{"uniform", func() byte { return byte(r.Uint32()) }, 8, PlaneRaw},
		{"7 bits", func() byte { return byte(r.Uint32() & 127) }, 7, PlaneHuff0},
		{"4 values", func() byte { return byte(r.Uint32() & 3) }, 2, PlaneHuff0},
		{"geometric", func() byte { return byte(math.Min(255, math.Floor(r.ExpFloat64()/math.Ln2))) }, 2, PlaneHuff0},
		{"1 in 50", func() byte { return byte(max(r.IntN(50), 48)) }, 0.1414, PlaneZstd},
	} {
		const rounds = 100
		s := new(sampler)
		sample := make([]byte, sampleElements)
		mean := 0.0
		for range rounds {
			for i := range sample {
				sample[i] = c.draw()
			}
			codec, size := s.plane(sample, 1<<16, Layout{4, true})
			if codec != c.codec {
				t.Errorf("%s: codec %d, not %d", c.name, codec, c.codec)
			}
			mean += float64(size) / (1 << costBits) / sampleElements / rounds
		}
		// 0.03 bits are 0.4 % of a byte, which is less than minGain.
		if math.Abs(mean-c.entropy) > 0.03 {
			t.Errorf("%s: %.3f bits a byte, its entropy is %.3f", c.name, mean, c.entropy)
		}
	}
}

// The sample reaches from the chunk's first element to its last, whatever its length.
func TestTakeReachesBothEnds(t *testing.T) {
	s := new(sampler)
	for _, width := range []int{1, 2, 4, 8} {
		for _, n := range []int{2, 100, 1023, 1024, 1025, 1100, 2047, 5000, MaxBytes / width} {
			raw := make([]byte, n*width)
			raw[len(raw)-1], raw[0] = 9, 7
			got := s.take(raw, nil, width)
			if got[0] != 7 || len(got) != min(n, sampleElements)*width {
				t.Errorf("width %d, %d elements: a sample of %d bytes that begins with %d", width, n, len(got), got[0])
			}
			// Steps are rounded down, so fewer elements than a step may remain after the last run.
			if last := got[len(got)-1]; last != 9 && (n <= sampleElements || (n-runElements)%(sampleRuns-1) == 0) {
				t.Errorf("width %d, %d elements: the sample ends with %d", width, n, last)
			}
		}
	}
}
