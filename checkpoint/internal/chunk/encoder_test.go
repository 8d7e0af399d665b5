package chunk_test

import (
	"bytes"
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"

	"pgregory.net/rapid"
)

// A new encoder and one that has encoded other kinds of data encode a chunk to the same bytes.
func TestEncodeIsDeterministic(t *testing.T) {
	for _, c := range []chunk.Codec{chunk.Auto, chunk.ZstdOnly} {
		r := rand.New(rand.NewPCG(5, 6))
		old := newEncoder(t, c)
		for _, k := range chunktest.Kinds() {
			data, base := k.Make(r, chunk.MaxBytes/k.Layout.Width+100)
			want, _ := encodeAll(newEncoder(t, c), data, base, k.Layout)
			got, _ := encodeAll(old, data, base, k.Layout)
			for i := range want {
				if got[i].method != want[i].method || !bytes.Equal(got[i].stored, want[i].stored) {
					t.Errorf("codec %d, %s: chunk %d depends on what was encoded before", c, k.Name, i)
				}
			}
		}
	}
}

// A misleading sample does not harm: a plane that looks random in the sample is stored raw, and one that looks constant but is not is still
// decoded to what it was.
func TestEncodeSurvivesAMisleadingSample(t *testing.T) {
	e, d := newEncoder(t, chunk.Auto), newDecoder(t)
	r := rand.New(rand.NewPCG(7, 8))
	for _, l := range layouts {
		for range 20 {
			raw := make([]byte, chunk.MaxBytes)
			at := r.IntN(len(raw))
			each(raw[at:min(at+l.Width*r.IntN(6000), len(raw))], func(int) byte { return byte(r.Uint32()) })
			roundTrip(t, e, d, raw, nil, l)
		}
	}
}

func TestEncodeChoosesDelta(t *testing.T) {
	e := newEncoder(t, chunk.Auto)
	r := rand.New(rand.NewPCG(9, 10))
	l := chunk.Layout{Width: 4, Float: true}
	raw, noise := make([]byte, chunk.MaxBytes), make([]byte, chunk.MaxBytes)
	each(raw, func(int) byte { return byte(r.Uint32()) })
	each(noise, func(int) byte { return byte(r.Uint32()) })
	stored, m := e.Encode(raw, bytes.Clone(raw), l)
	// The chunk has a checksum and four constant planes, each with an entry and a byte.
	if m != chunk.Planes|chunk.Delta || len(stored) != 4+4*(4+1) {
		t.Errorf("an unchanged chunk takes %d bytes by method %#x", len(stored), m)
	}
	if _, m := e.Encode(raw, noise, l); m != chunk.Raw {
		t.Errorf("noise against noise: method %#x", m)
	}
	if stored, m := e.Encode(make([]byte, chunk.MaxBytes), noise, l); m != chunk.Planes || len(stored) != 4*(4+1) {
		t.Errorf("zeros against noise: %d bytes by method %#x", len(stored), m)
	}
	z := newEncoder(t, chunk.ZstdOnly)
	if _, m := z.Encode(raw, bytes.Clone(raw), l); m != chunk.Zstd|chunk.Delta {
		t.Errorf("an unchanged chunk by zstd: method %#x", m)
	}
	n := newEncoder(t, chunk.None)
	if _, m := n.Encode(raw, bytes.Clone(raw), l); m != chunk.Raw {
		t.Errorf("codec none: method %#x", m)
	}
}

// If LeavesRaw predicts that Encode will leave a chunk raw, Encode does so.
func TestLeavesRaw(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, c := range []chunk.Codec{chunk.Auto, chunk.ZstdOnly, chunk.None} {
		look, e := newEncoder(t, c), newEncoder(t, c)
		for _, k := range chunktest.Kinds() {
			for _, n := range []int{1, 100, chunk.MaxBytes / k.Layout.Width} {
				raw, base := k.Make(r, n)
				left := look.LeavesRaw(raw, base, k.Layout)
				if _, m := e.Encode(raw, base, k.Layout); left && m != chunk.Raw {
					t.Errorf("codec %d, %d elements of %s: LeavesRaw, and method %#x", c, n, k.Name, m)
				}
			}
		}
		noise, l := make([]byte, chunk.MaxBytes), chunk.Layout{Width: 4, Float: true}
		each(noise, func(int) byte { return byte(r.Uint32()) })
		if got, want := look.LeavesRaw(noise, nil, l), c != chunk.ZstdOnly; got != want { // ZstdOnly does not sample
			t.Errorf("codec %d, noise: LeavesRaw is %v", c, got)
		}
		if got, want := look.LeavesRaw(make([]byte, chunk.MaxBytes), nil, l), c == chunk.None; got != want {
			t.Errorf("codec %d, zeros: LeavesRaw is %v", c, got)
		}
	}
}

func TestEncodePanicsOnBadArguments(t *testing.T) {
	e := newEncoder(t, chunk.Auto)
	for name, f := range map[string]func(){
		"empty":        func() { e.Encode(nil, nil, chunk.Layout{Width: 1}) },
		"too long":     func() { e.Encode(make([]byte, chunk.MaxBytes+1), nil, chunk.Layout{Width: 1}) },
		"half element": func() { e.Encode(make([]byte, 6), nil, chunk.Layout{Width: 4}) },
		"width 3":      func() { e.Encode(make([]byte, 6), nil, chunk.Layout{Width: 3}) },
		"width 0":      func() { e.Encode(make([]byte, 6), nil, chunk.Layout{}) },
		"short base":   func() { e.Encode(make([]byte, 8), make([]byte, 4), chunk.Layout{Width: 4}) },
		"leave empty":  func() { e.LeavesRaw(nil, nil, chunk.Layout{Width: 1}) },
		"empty base":   func() { e.Encode(make([]byte, 8), []byte{}, chunk.Layout{Width: 4}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			f()
		})
	}
	if _, err := chunk.NewEncoder(99); err == nil {
		t.Error("an encoder of an unknown codec")
	}
}

// After an encoder and a decoder have handled a kind of data, they do not allocate for it any more.
func TestCodersAllocateNothingOnceWarm(t *testing.T) {
	if race {
		t.Skip("the race detector makes sync.Pool, which huff0 and zstd use, forget what it has")
	}
	e, d := newEncoder(t, chunk.Auto), newDecoder(t)
	r := rand.New(rand.NewPCG(11, 12))
	dst := make([]byte, chunk.MaxBytes)
	for _, k := range chunktest.Kinds() {
		raw, base := k.Make(r, chunk.MaxBytes/k.Layout.Width)
		run := func() {
			stored, m := e.Encode(raw, base, k.Layout)
			if err := d.Decode(dst, stored, m, k.Layout, base); err != nil {
				t.Fatal(err)
			}
		}
		run()
		// A garbage collection may empty the pools of huff0 and zstd, and what they held is allocated again. That only adds to a count, so
		// the smallest of several counts decides.
		var counts []float64
		for len(counts) < 5 && !slices.Contains(counts, 0) {
			counts = append(counts, testing.AllocsPerRun(20, run))
		}
		if !slices.Contains(counts, 0) {
			t.Errorf("%s: %v allocations a chunk", k.Name, counts)
		}
	}
}

var layouts = []chunk.Layout{
	{Width: 1}, {Width: 2}, {Width: 4}, {Width: 8},
	{Width: 1, Float: true}, {Width: 2, Float: true}, {Width: 4, Float: true}, {Width: 8, Float: true},
}

// generators are ways to fill a chunk. Together they make the encoder use every codec of planes.
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

// lengths are lengths in elements, close to the step sizes of the loops, the size of a sample, and the limits of huff0.
var lengths = []int{1, 2, 3, 7, 8, 9, 11, 12, 31, 32, 33, 63, 100, 1023, 1024, 1025, 5000}

func TestDecodeReturnsWhatWasEncoded(t *testing.T) {
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

// TestDecodeReturnsTheLongestChunks does the same with the longest chunks.
func TestDecodeReturnsTheLongestChunks(t *testing.T) {
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

func TestDecodeReturnsRandomChunks(t *testing.T) {
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

// roundTrip encodes and decodes a chunk, and checks that the encoded chunk is what Encode promises.
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

// TestSizesAreNearTheOptimum measures what sampling costs. It compares the stored size with that of Huffman's algorithm if every plane is
// counted in full, as ZipNN does, with codes of any length and without tables.
func TestSizesAreNearTheOptimum(t *testing.T) {
	e := newEncoder(t, chunk.Auto)
	for _, k := range chunktest.Kinds() {
		data, base := k.Make(rand.New(rand.NewPCG(3, 1)), 2*chunk.MaxBytes/k.Layout.Width)
		optimum := 0
		eachChunk(data, base, func(raw, base []byte) {
			optimum += min(planesOptimum(raw, nil, k.Layout), planesOptimum(raw, base, k.Layout))
		})
		_, stored := encodeAll(e, data, base, k.Layout)
		// Planes that would shrink by less than a 64th may stay raw, which is 0.4 % of a chunk of float32. Tables take 0.1 % of a plane.
		if float64(stored) > 1.005*float64(optimum) {
			t.Errorf("%s: %d bytes, Huffman codes take %d", k.Name, stored, optimum)
		}
	}
}

// planesOptimum returns how many bytes the planes of raw, or of raw XOR base, take if each has a Huffman code of its own.
func planesOptimum(raw, base []byte, l chunk.Layout) int {
	w := l.Width
	var counts [8][256]int
	for i := 0; i < len(raw); i += w {
		var x uint64
		for k := w - 1; k >= 0; k-- {
			v := raw[i+k]
			if base != nil {
				v ^= base[i+k]
			}
			x = x<<8 | uint64(v)
		}
		if l.Float {
			x = x<<1 | x>>(8*w-1)
		}
		for k := range w {
			counts[k][byte(x>>(8*k))]++
		}
	}
	total := 0
	for k := range w {
		total += min(huffmanBits(counts[k][:])/8, len(raw)/w)
	}
	return total
}

// huffmanBits returns the length of all codes together, which is the sum of the weights of the tree's inner nodes.
func huffmanBits(counts []int) (bits int) {
	var h weightHeap
	for _, c := range counts {
		if c > 0 {
			h = append(h, c)
		}
	}
	heap.Init(&h)
	for len(h) > 1 {
		sum := heap.Pop(&h).(int) + heap.Pop(&h).(int)
		bits += sum
		heap.Push(&h, sum)
	}
	return bits
}

type weightHeap []int

func (h weightHeap) Len() int           { return len(h) }
func (h weightHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h weightHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *weightHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *weightHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// ratios are limits of the stored size by kind. Those of the first two are what ZipNN was measured to reach on such data. Those of Adam's
// moments and of float32 that holds bfloat16 are the targets of the package. Those of differences are the better one of what Huffman codes
// alone and zstd alone were measured to reach. The limit of the smallest is a tenth more, since it has too few bytes to be certain.
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

// spread is how far the ratio of 2 MiB may be from that of endless data. The information in 512 Ki exponents has a relative standard
// deviation of about 0.0008, and that in 1 Mi exponents of 0.0006. The exponents take 8 % and 16 % of the raw size.
const spread = 0.0003

func TestRatiosStayBelowTheirLimits(t *testing.T) {
	e := newEncoder(t, chunk.Auto)
	for _, k := range chunktest.Kinds() {
		size := 2 * chunk.MaxBytes
		if k.Name == "float32" || k.Name == "bfloat16" { // their limits are the closest
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
