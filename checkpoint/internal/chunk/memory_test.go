package chunk_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"
)

// Frames that ask for much memory are refused by decoders that have allocated nothing yet.
func TestDecodeMemory(t *testing.T) {
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	block := bytes.Repeat([]byte{1}, 40)
	for name, frame := range map[string][]byte{
		"window of 1 GiB":           append(append(bytes.Clone(magic), 0x00, 20<<3), block...),
		"largest window":            append(append(bytes.Clone(magic), 0x00, 0xff), block...),
		"content of 4 GiB":          append(append(bytes.Clone(magic), 0xa0, 0xff, 0xff, 0xff, 0xff), block...),
		"largest content":           append(append(bytes.Clone(magic), 0xe0), bytes.Repeat([]byte{0xff}, 48)...),
		"one byte repeated, 2 MiB":  append(append(bytes.Clone(magic), 0x00, 0x00), 0x03, 0x00, 0xff, 7),
		"many blocks that repeat":   append(append(bytes.Clone(magic), 0x00, 0x40), bytes.Repeat([]byte{0x02, 0x00, 0x10, 7}, 1000)...),
		"skippable, longer than it": append([]byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0x7f}, block...),
	} {
		for _, length := range []int{chunk.MaxBytes, 8192} {
			n := allocated(func() {
				d := newDecoder(t)
				if d.Decode(make([]byte, length), frame, chunk.Zstd, chunk.Layout{Width: 4}, nil) == nil {
					t.Errorf("%s: no error", name)
				}
				stored := planes(planeZstd, frame, planeConstant, []byte{0})
				if d.Decode(make([]byte, length), stored, chunk.Planes, chunk.Layout{Width: 2}, nil) == nil {
					t.Errorf("%s as a plane: no error", name)
				}
			})
			if n > memoryLimit {
				t.Errorf("%s: %d bytes allocated", name, n)
			}
		}
	}
}

// What the documentation says of an encoder's and a decoder's memory.
func TestMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	e, d := newEncoder(t, chunk.Auto), newDecoder(t)
	dst := make([]byte, chunk.MaxBytes)
	var coder, decoder uint64
	coder += allocated(func() { e = newEncoder(t, chunk.Auto) })
	decoder += allocated(func() { d = newDecoder(t) })
	for _, k := range chunktest.Kinds() {
		raw, base := k.Make(r, chunk.MaxBytes/k.Layout.Width)
		var stored []byte
		var m chunk.Method
		coder += allocated(func() { stored, m = e.Encode(raw, base, k.Layout) })
		decoder += allocated(func() {
			if err := d.Decode(dst, stored, m, k.Layout, base); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("encoder: %d KiB, decoder: %d KiB", coder>>10, decoder>>10)
	if coder > 4<<20 || decoder > 1<<20 {
		t.Errorf("encoder: %d KiB, decoder: %d KiB", coder>>10, decoder>>10)
	}
}

// allocated is how many bytes f allocates, freed or not.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
