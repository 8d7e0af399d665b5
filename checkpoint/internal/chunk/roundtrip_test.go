package chunk_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/checkpoint/internal/chunk"
)

var layouts = []chunk.Layout{
	{Width: 1}, {Width: 2}, {Width: 4}, {Width: 8},
	{Width: 1, Float: true}, {Width: 2, Float: true}, {Width: 4, Float: true}, {Width: 8, Float: true},
}

// generators are ways to fill a chunk, so that every codec of planes is met.
var generators = []struct {
	name string
	fill func(r *rand.Rand, b []byte, width int)
}{
	{"zeros", func(r *rand.Rand, b []byte, width int) {}},
	{"noise", func(r *rand.Rand, b []byte, width int) { each(b, func(int) byte { return byte(r.Uint32()) }) }},
	{"skewed", func(r *rand.Rand, b []byte, width int) {
		each(b, func(int) byte { return byte(int(r.ExpFloat64() * 3)) })
	}},
	{"top plane", func(r *rand.Rand, b []byte, width int) {
		each(b, func(i int) byte {
			if i%width == width-1 {
				return byte(int(r.NormFloat64() * 2))
			}
			return byte(r.Uint32())
		})
	}},
	{"bottom plane", func(r *rand.Rand, b []byte, width int) {
		each(b, func(i int) byte {
			if i%width == 0 {
				return byte(int(r.NormFloat64() * 2))
			}
			return byte(r.Uint32())
		})
	}},
	{"sparse", func(r *rand.Rand, b []byte, width int) {
		for range len(b)/500 + 1 {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
	}},
	{"one byte", func(r *rand.Rand, b []byte, width int) { b[r.IntN(len(b))] = 1 }},
	{"halves", func(r *rand.Rand, b []byte, width int) {
		each(b[:len(b)/2], func(int) byte { return byte(r.Uint32()) })
	}},
	{"counter", func(r *rand.Rand, b []byte, width int) { each(b, func(i int) byte { return byte(i / width) }) }},
}

func each(b []byte, f func(i int) byte) {
	for i := range b {
		b[i] = f(i)
	}
}

// lengths are in elements: around the sizes of the loops' steps, of a sample, and of what huff0 takes.
var lengths = []int{1, 2, 3, 7, 8, 9, 11, 12, 31, 32, 33, 63, 100, 1023, 1024, 1025, 5000}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	d := newDecoder(t)
	for _, c := range []chunk.Codec{chunk.Auto, chunk.ZstdOnly, chunk.None} {
		e := newEncoder(t, c)
		for _, l := range layouts {
			for _, g := range generators {
				for _, n := range lengths {
					raw, base := make([]byte, n*l.Width), make([]byte, n*l.Width)
					g.fill(r, raw, l.Width)
					generators[r.IntN(len(generators))].fill(r, base, l.Width)
					roundTrip(t, e, d, raw, nil, l)
					roundTrip(t, e, d, raw, base, l)
				}
			}
		}
	}
}

// The same with chunks as long as they get.
func TestRoundTripLong(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	e, d := newEncoder(t, chunk.Auto), newDecoder(t)
	for _, l := range layouts {
		base := make([]byte, chunk.MaxBytes)
		for i, g := range generators {
			raw := make([]byte, chunk.MaxBytes-i%2*l.Width)
			g.fill(r, raw, l.Width)
			roundTrip(t, e, d, raw, nil, l)
			roundTrip(t, e, d, raw, base[:len(raw)], l)
			copy(base, raw)
		}
	}
}

func TestRoundTripProperty(t *testing.T) {
	e := map[chunk.Codec]*chunk.Encoder{chunk.Auto: newEncoder(t, chunk.Auto), chunk.ZstdOnly: newEncoder(t, chunk.ZstdOnly)}
	d := newDecoder(t)
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom(layouts).Draw(t, "layout")
		n := rapid.IntRange(1, 20000/l.Width).Draw(t, "elements")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		raw := make([]byte, n*l.Width)
		generators[rapid.IntRange(0, len(generators)-1).Draw(t, "kind")].fill(r, raw, l.Width)
		var base []byte
		if rapid.Bool().Draw(t, "delta") {
			base = bytes.Clone(raw)
			for range rapid.IntRange(0, 1000).Draw(t, "changed") {
				base[r.IntN(len(base))] ^= byte(r.Uint32())
			}
		}
		roundTrip(t, e[rapid.SampledFrom([]chunk.Codec{chunk.Auto, chunk.ZstdOnly}).Draw(t, "codec")], d, raw, base, l)
	})
}

// roundTrip encodes and decodes a chunk, and holds what comes between to what Encode promises.
func roundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, e *chunk.Encoder, d *chunk.Decoder, raw, base []byte, l chunk.Layout) {
	t.Helper()
	before := bytes.Clone(raw)
	stored, m := e.Encode(raw, base, l)
	if !bytes.Equal(raw, before) {
		t.Fatalf("%+v, %d bytes: Encode changed its input", l, len(raw))
	}
	if len(stored) > len(raw) || !m.Plausible(len(stored), len(raw), l) {
		t.Fatalf("%+v, %d bytes: method %#x takes %d", l, len(raw), m, len(stored))
	}
	if m == chunk.Raw && &stored[0] != &raw[0] {
		t.Fatalf("%+v, %d bytes: stored raw, but not as raw itself", l, len(raw))
	}
	if m&chunk.Delta != 0 && base == nil {
		t.Fatalf("%+v, %d bytes: a difference to no base", l, len(raw))
	}
	got := make([]byte, len(raw))
	if err := d.Decode(got, stored, m, l, base); err != nil {
		t.Fatalf("%+v, %d bytes by method %#x: %v", l, len(raw), m, err)
	}
	if !bytes.Equal(got, raw) {
		t.Fatalf("%+v, %d bytes by method %#x: they came back changed", l, len(raw), m)
	}
}
