package chunk_test

import (
	"math/rand/v2"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"
)

// benchBytes is more than a core's caches hold, as in a checkpoint.
const benchBytes = 8 << 20

// The benchmarks report input bytes per second of one goroutine, and stored bytes per raw byte as "ratio".
func BenchmarkEncode(b *testing.B) {
	eachKind(b, func(b *testing.B, k chunktest.Kind, data, base []byte) {
		e := newEncoder(b, chunk.Auto)
		stored := 0
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			stored = 0
			eachChunk(data, base, func(raw, base []byte) {
				s, _ := e.Encode(raw, base, k.Layout)
				stored += len(s)
			})
		}
		b.ReportMetric(float64(stored)/float64(len(data)), "ratio")
	})
}

func BenchmarkDecode(b *testing.B) {
	eachKind(b, func(b *testing.B, k chunktest.Kind, data, base []byte) {
		chunks, stored := encodeAll(newEncoder(b, chunk.Auto), data, base, k.Layout)
		d := newDecoder(b)
		dst := make([]byte, len(data))
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			i := 0
			eachChunk(dst, base, func(raw, base []byte) {
				if err := d.Decode(raw, chunks[i].stored, chunks[i].method, k.Layout, base); err != nil {
					b.Fatal(err)
				}
				i++
			})
		}
		b.ReportMetric(float64(stored)/float64(len(data)), "ratio")
	})
}

// BenchmarkCopy measures a plain copy, for comparison with encoding incompressible data.
func BenchmarkCopy(b *testing.B) {
	src, dst := make([]byte, benchBytes), make([]byte, chunk.MaxBytes)
	src[0] = 1
	for i := 1; i < len(src); i *= 2 {
		copy(src[i:], src[:i])
	}
	b.SetBytes(benchBytes)
	for b.Loop() {
		eachChunk(src, nil, func(raw, _ []byte) { copy(dst, raw) })
	}
}

func eachKind(b *testing.B, f func(b *testing.B, k chunktest.Kind, data, base []byte)) {
	for _, k := range chunktest.Kinds() {
		b.Run(k.Name, func(b *testing.B) {
			data, base := k.Make(rand.New(rand.NewPCG(1, 2)), benchBytes/k.Layout.Width)
			f(b, k, data, base)
		})
	}
}
