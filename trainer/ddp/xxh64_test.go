package ddp

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// A zstd frame ends with the lower half of the XXH64 of its content (RFC 8878, 3.1.1).
func TestDigestIsXXH64(t *testing.T) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	r := rand.New(rand.NewPCG(7, 8))
	for n := 1; n < 100; n++ {
		var x []float32
		var data []byte
		for range n {
			bits := r.Uint32()
			x = append(x, math.Float32frombits(bits))
			data = binary.LittleEndian.AppendUint32(data, bits)
		}
		frame := encoder.EncodeAll(data, nil)
		if got, want := uint32(digestOf(x)), binary.LittleEndian.Uint32(frame[len(frame)-4:]); got != want {
			t.Errorf("%d elements: the lower half is %x, zstd has %x", n, got, want)
		}
	}
	if got := digestOf(nil); got != 0xef46db3751d8e999 { // published with the algorithm
		t.Errorf("the digest of nothing is %x", got)
	}
}

// Every bit counts.
func TestDigestFeelsEveryBit(t *testing.T) {
	x := make([]float32, 37)
	seen := map[uint64]bool{digestOf(x): true}
	for i := range x {
		for bit := range 32 {
			x[i] = math.Float32frombits(1 << bit)
			seen[digestOf(x)] = true
			x[i] = 0
		}
	}
	if want := 37*32 + 1; len(seen) != want {
		t.Errorf("%d different digests, want %d", len(seen), want)
	}
}

func BenchmarkDigest(b *testing.B) {
	x := make([]float32, 1<<20)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		digestOf(x)
	}
}
