package chunk_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"
)

// memoryLimit is what a decoder may allocate for one chunk, and more than it needs: its own buffers and zstd's. It is
// 16 chunks.
const memoryLimit = 4 << 20

// FuzzDecode: no panic, bounded memory, whatever is stored.
func FuzzDecode(f *testing.F) {
	e := newEncoder(f, chunk.Auto)
	for _, k := range chunktest.Kinds() {
		data, base := k.Make(rand.New(rand.NewPCG(1, 2)), 300)
		stored, m := e.Encode(data, base, k.Layout)
		f.Add(stored, byte(m), byte(k.Layout.Width), k.Layout.Float, len(data))
	}
	f.Add(frame(f, make([]byte, 500)), byte(chunk.Zstd), byte(1), false, 500)
	f.Add(planes(planeZstd, frame(f, make([]byte, 50)), planeConstant, []byte{1}), byte(chunk.Planes), byte(2), false, 100)
	f.Add(planes(planeRaw, make([]byte, 50), planeConstant, []byte{1}), byte(chunk.Planes), byte(2), true, 100)
	d := newDecoder(f)
	dst, base := make([]byte, chunk.MaxBytes), make([]byte, chunk.MaxBytes)
	f.Fuzz(func(t *testing.T, stored []byte, method, width byte, float bool, length int) {
		length = min(max(length, 0), len(dst))
		l := chunk.Layout{Width: int(width), Float: float}
		var err error
		n := allocated(func() { err = d.Decode(dst[:length], stored, chunk.Method(method), l, base[:length]) })
		if n > memoryLimit {
			t.Errorf("%d bytes allocated for a chunk of %d (%v)", n, length, err)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	for _, k := range chunktest.Kinds() {
		data, _ := k.Make(rand.New(rand.NewPCG(1, 2)), 300)
		f.Add(data, byte(k.Layout.Width), k.Layout.Float, byte(chunk.Auto), byte(1))
	}
	f.Add(bytes.Repeat([]byte("abc"), 100), byte(1), false, byte(chunk.ZstdOnly), byte(0))
	d := newDecoder(f)
	encoders := []*chunk.Encoder{newEncoder(f, chunk.Auto), newEncoder(f, chunk.ZstdOnly), newEncoder(f, chunk.None)}
	f.Fuzz(func(t *testing.T, data []byte, width byte, float bool, codec, difference byte) {
		l := chunk.Layout{Width: 1 << (width % 4), Float: float}
		n := min(len(data), chunk.MaxBytes) / l.Width * l.Width
		if n == 0 {
			t.Skip("less than an element")
		}
		var base []byte
		if difference > 0 {
			base = bytes.Clone(data[:n])
			for i := 0; i < n; i += int(difference) {
				base[i] ^= difference
			}
		}
		roundTrip(t, encoders[int(codec)%len(encoders)], d, data[:n], base, l)
	})
}
