package chunk_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"

	"github.com/klauspost/compress/zstd"
)

const (
	planeRaw      = 0
	planeConstant = 1
	planeHuff0    = 2
	planeZstd     = 3
)

// planes returns a chunk of method Planes as the format describes it, for pairs of a codec and the bytes of a plane.
func planes(p ...any) []byte {
	var head, body []byte
	for i := 0; i < len(p); i += 2 {
		data := p[i+1].([]byte)
		head = append(head, byte(p[i].(int)), byte(len(data)), byte(len(data)>>8), byte(len(data)>>16))
		body = append(body, data...)
	}
	return append(head, body...)
}

// sealed returns a difference with the checksum of the bytes that it decodes to in front.
func sealed(raw string, stored []byte) []byte {
	sum := crc32.Checksum([]byte(raw), crc32.MakeTable(crc32.Castagnoli))
	return append(binary.LittleEndian.AppendUint32(nil, sum), stored...)
}

func frame(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true), zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

// TestDecodeReadsChunksMadeByHand checks the format: its chunks were written by hand, not by the encoder.
func TestDecodeReadsChunksMadeByHand(t *testing.T) {
	d := newDecoder(t)
	float4, int2 := chunk.Layout{Width: 4, Float: true}, chunk.Layout{Width: 2}
	zeros := make([]byte, 64)
	constants := planes(1, []byte{2}, 1, []byte{0x7f})
	for name, c := range map[string]struct {
		stored []byte
		method chunk.Method
		layout chunk.Layout
		base   []byte
		want   []byte
	}{
		"raw":      {[]byte("abcd"), chunk.Raw, float4, nil, []byte("abcd")},
		"constant": {constants, chunk.Planes, chunk.Layout{Width: 2, Float: true}, nil, []byte(strings.Repeat("\x81\x3f", 8))},
		"integers": {constants, chunk.Planes, int2, nil, []byte(strings.Repeat("\x02\x7f", 8))},
		"mixed":    {planes(0, []byte("abcdefghijkl"), 1, []byte("-")), chunk.Planes, int2, nil, []byte("a-b-c-d-e-f-g-h-i-j-k-l-")},
		"delta": {sealed("`b`b`b`b`b`b`b`b", planes(1, []byte{1}, 1, []byte{0})), chunk.Planes | chunk.Delta, int2,
			[]byte("abababababababab"), []byte("`b`b`b`b`b`b`b`b")},
		"zstd delta": {sealed("``````````````````````````````", frame(t, zeros[:30])), chunk.Zstd | chunk.Delta, int2,
			[]byte("``````````````````````````````"), []byte("``````````````````````````````")},
		"zstd":  {frame(t, zeros), chunk.Zstd, float4, nil, zeros},
		"frame": {planes(3, frame(t, zeros), 1, []byte{0}), chunk.Planes, int2, nil, make([]byte, 128)},
	} {
		got := make([]byte, len(c.want))
		if err := d.Decode(got, c.stored, c.method, c.layout, c.base); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !bytes.Equal(got, c.want) {
			t.Errorf("%s: % x, not % x", name, got, c.want)
		}
	}
}

func TestDecodeRefusesBadChunks(t *testing.T) {
	d := newDecoder(t)
	two := chunk.Layout{Width: 2}
	x := bytes.Repeat([]byte{5}, 100)
	skippable := []byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 'x'}
	// This frame is a single segment of 100 bytes that needs dictionary 1. It has one block that repeats a byte.
	withDictionary := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x21, 1, 100, 0x23, 0x03, 0, 5}
	for name, c := range map[string]struct {
		stored []byte
		method chunk.Method
		length int
		base   []byte
		want   string
	}{
		"raw of another length":     {x, chunk.Raw, 102, nil, "cannot be a chunk"},
		"raw delta":                 {x, chunk.Raw | chunk.Delta, 100, x, "cannot be a chunk"},
		"unknown method":            {x, 3, 200, nil, "cannot be a chunk"},
		"unknown flag":              {x, 0x41, 200, nil, "cannot be a chunk"},
		"half an element":           {x[:3], chunk.Raw, 3, nil, "cannot be a chunk"},
		"too long":                  {x, chunk.Zstd, chunk.MaxBytes + 2, nil, "cannot be a chunk"},
		"no shorter than raw":       {x, chunk.Zstd, 100, nil, "cannot be a chunk"},
		"no base":                   {sealed("", planes(1, x[:1], 1, x[:1])), chunk.Planes | chunk.Delta, 100, nil, "base"},
		"short base":                {sealed("", planes(1, x[:1], 1, x[:1])), chunk.Planes | chunk.Delta, 100, x[:98], "base"},
		"no frame":                  {x, chunk.Zstd, 200, nil, "zstd frame"},
		"frame too short":           {frame(t, x), chunk.Zstd, 102, nil, "holds 100 bytes, not 102"},
		"frame too long":            {frame(t, x), chunk.Zstd, 98, nil, "exceed"},
		"a header only":             {planes(1, x[:0], 1, x[:0]), chunk.Planes, 100, nil, "cannot be a chunk"},
		"plane beyond the end":      {planes(1, x[:1], 0, x)[:60], chunk.Planes, 200, nil, "only"},
		"bytes left":                {append(planes(1, x[:1], 1, x[:1]), 1), chunk.Planes, 100, nil, "more than"},
		"constant of 2 bytes":       {planes(1, x[:1], 1, x[:2]), chunk.Planes, 100, nil, "plane 1"},
		"constant of none":          {planes(1, x[:0], 1, x[:2]), chunk.Planes, 100, nil, "plane 0"},
		"raw plane too short":       {planes(0, x[:49], 1, x[:1]), chunk.Planes, 100, nil, "plane 0"},
		"raw plane too long":        {planes(0, x[:51], 1, x[:1]), chunk.Planes, 100, nil, "plane 0"},
		"unknown codec":             {planes(4, x[:1], 1, x[:1]), chunk.Planes, 100, nil, "codec 4"},
		"huff0 of nothing":          {planes(2, x[:0], 1, x[:2]), chunk.Planes, 100, nil, "Huffman table"},
		"huff0 of garbage":          {planes(2, x[:20], 1, x[:1]), chunk.Planes, 100, nil, "Huffman"},
		"huff0 longer than raw":     {planes(2, x[:50], 1, x[:1]), chunk.Planes, 100, nil, "codec 2"},
		"plane's frame too short":   {planes(3, frame(t, x), 1, x[:1]), chunk.Planes, 202, nil, "holds 100 bytes, not 101"},
		"plane's frame too long":    {planes(3, frame(t, x), 1, x[:1]), chunk.Planes, 198, nil, "exceed"},
		"plane without a frame":     {planes(3, x[:0], 1, x[:2]), chunk.Planes, 198, nil, "EOF"},
		"another base":              {sealed("", planes(1, x[:1], 1, x[:1])), chunk.Planes | chunk.Delta, 100, x, "another one or damaged"},
		"two frames":                {append(frame(t, x), frame(t, x)...), chunk.Zstd, 200, nil, "not one frame"},
		"a skippable frame first":   {append(skippable, frame(t, x)...), chunk.Zstd, 100, nil, "not one frame"},
		"a skippable frame last":    {append(frame(t, x), skippable...), chunk.Zstd, 100, nil, "not one frame"},
		"a skippable frame only":    {skippable, chunk.Zstd, 100, nil, "not one frame"},
		"a byte after the frame":    {append(frame(t, x), 0), chunk.Zstd, 100, nil, "not one frame"},
		"frame cut in a block":      {frame(t, x)[:9], chunk.Zstd, 100, nil, "EOF"},
		"frame cut in its checksum": {frame(t, x)[:len(frame(t, x))-1], chunk.Zstd, 100, nil, "not one frame"},
		"frame with a dictionary":   {withDictionary, chunk.Zstd, 100, nil, "not one frame"},
		"two frames for a plane": {planes(3, append(frame(t, x[:50]), frame(t, x[50:])...), 1, x[:1]), chunk.Planes,
			200, nil, "not one frame"},
		"plane's frame not smaller": {planes(3, x[:20], 1, x[:1]), chunk.Planes, 40, nil, "codec 3"},
	} {
		err := d.Decode(make([]byte, c.length), c.stored, c.method, two, c.base)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; it should say %q", name, err, c.want)
		}
	}
}

// huff0 accepts at most 256 KiB minus 1 byte, so a plane of a whole chunk cannot be Huffman-coded, and a decoder refuses it.
func TestDecodeRefusesTooLongHuffmanPlane(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	raw := make([]byte, chunk.MaxBytes)
	each(raw, func(int) byte { return byte(int(r.NormFloat64() * 4)) })
	e, d := newEncoder(t, chunk.Auto), newDecoder(t)
	l := chunk.Layout{Width: 1, Float: true}
	stored, m := e.Encode(raw, nil, l)
	if m != chunk.Planes || stored[0] != planeZstd {
		t.Fatalf("method %#x, codec %d", m, stored[0])
	}
	stored, m = e.Encode(raw[1:], nil, l)
	if m != chunk.Planes || stored[0] != planeHuff0 {
		t.Fatalf("method %#x, codec %d", m, stored[0])
	}
	if err := d.Decode(raw, bytes.Clone(stored), m, l, nil); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("%v", err)
	}
}

func TestDecodeWorksAfterErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	e, d := newEncoder(t, chunk.Auto), newDecoder(t)
	l := chunk.Layout{Width: 2, Float: true}
	raw := make([]byte, 1<<14)
	each(raw, func(i int) byte { return byte(int(r.NormFloat64() * float64(1+i%2*4))) })
	stored, m := e.Encode(raw, nil, l)
	if m != chunk.Planes {
		t.Fatalf("method %#x", m)
	}
	got, failed := make([]byte, len(raw)), 0
	for range 2000 {
		bad := bytes.Clone(stored)
		bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		if d.Decode(got, bad, m, l, nil) != nil {
			failed++
		}
	}
	if err := d.Decode(got, stored, m, l, nil); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("after %d errors: %v", failed, err)
	}
	if failed == 0 {
		t.Error("no damage was noticed")
	}
}

// Decoding with a base that differs from the encoder's, in one bit or in all bytes, never returns data.
func TestDecodeRefusesAnotherBase(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	d := newDecoder(t)
	for _, c := range []chunk.Codec{chunk.Auto, chunk.ZstdOnly} {
		e := newEncoder(t, c)
		for _, l := range layouts {
			raw := make([]byte, 4096)
			each(raw, func(int) byte { return byte(r.Uint32()) })
			base := bytes.Clone(raw)
			base[r.IntN(len(base))] ^= 4
			stored, m := e.Encode(raw, base, l)
			if m&chunk.Delta == 0 {
				t.Fatalf("codec %d, %+v: method %#x", c, l, byte(m))
			}
			for range 50 {
				other := bytes.Clone(base)
				other[r.IntN(len(other))] ^= 1 << r.IntN(8)
				if err := d.Decode(make([]byte, len(raw)), stored, m, l, other); err == nil ||
					!strings.Contains(err.Error(), "another one or damaged") {
					t.Fatalf("codec %d, %+v: error %v", c, l, err)
				}
			}
		}
	}
}

// The decoded bytes do not depend on what dst or the decoder contained before, and Decode overwrites all of dst.
func TestDecodeDependsOnNothingElse(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	e, d := newEncoder(t, chunk.Auto), newDecoder(t)
	damaged := 0
	for range 800 {
		l := layouts[r.IntN(len(layouts))]
		raw := make([]byte, (1+r.IntN(3000))*l.Width)
		generators[r.IntN(len(generators))].fill(r, raw, l.Width)
		stored, m := e.Encode(raw, nil, l)
		stored = bytes.Clone(stored)
		for range r.IntN(3) {
			stored[r.IntN(min(len(stored), 64))] = byte(r.Uint32())
		}
		zeros, ones := make([]byte, len(raw)), bytes.Repeat([]byte{0xff}, len(raw))
		err := d.Decode(zeros, stored, m, l, nil)
		again := d.Decode(ones, stored, m, l, nil)
		if (err == nil) != (again == nil) || err == nil && !bytes.Equal(zeros, ones) {
			t.Fatalf("%+v, %d bytes by method %#x: %v, then %v", l, len(raw), byte(m), err, again)
		}
		if err != nil {
			damaged++
		}
	}
	if damaged == 0 {
		t.Error("no damage was met")
	}
}

// A decoder refuses frames that ask for much memory, and does not allocate that memory first.
func TestDecodeRefusesFramesOfMuchMemory(t *testing.T) {
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

func TestMemoryIsWhatTheDocumentationSays(t *testing.T) {
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

// allocated returns how many bytes f allocates, including those that are freed again.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// memoryLimit is what a decoder may allocate for one chunk. That is the size of 16 chunks, and more than a decoder needs for its own
// buffers and those of zstd.
const memoryLimit = 4 << 20

// FuzzDecode checks that no stored bytes make Decode panic or allocate more than memoryLimit.
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
