package chunk_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"
)

// The same chunk gives the same bytes from a new encoder and from one that has seen other kinds.
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

// A plane that looks random in the sample is stored raw, and one that looks constant but is not still comes back.
func TestEncodeMisledBySample(t *testing.T) {
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
	// A checksum, and all planes are constant: an entry and a byte each.
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

// LeavesRaw says before what Encode will leave raw, and never of a chunk that becomes smaller.
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
		if got, want := look.LeavesRaw(noise, nil, l), c != chunk.ZstdOnly; got != want { // zstd takes no sample
			t.Errorf("codec %d, noise: LeavesRaw is %v", c, got)
		}
		if got, want := look.LeavesRaw(make([]byte, chunk.MaxBytes), nil, l), c == chunk.None; got != want {
			t.Errorf("codec %d, zeros: LeavesRaw is %v", c, got)
		}
	}
}

func TestEncodePanics(t *testing.T) {
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

// Once an encoder and a decoder have seen a kind, they allocate nothing.
func TestAllocations(t *testing.T) {
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
		// What a collection empties of the pools of huff0 and zstd is made again. That only adds: the least of several counts decides.
		var counts []float64
		for len(counts) < 5 && !slices.Contains(counts, 0) {
			counts = append(counts, testing.AllocsPerRun(20, run))
		}
		if !slices.Contains(counts, 0) {
			t.Errorf("%s: %v allocations a chunk", k.Name, counts)
		}
	}
}
