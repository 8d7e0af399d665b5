package chunk_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"
)

// ParseHead returns the planes of chunks that were written by hand.
func TestParseHead(t *testing.T) {
	l := chunk.Layout{Width: 4}
	stored := planes(0, []byte("abcdefgh"), 1, []byte("x"), 2, []byte("123"), 3, []byte("frame"))
	want := []chunk.Plane{{chunk.PlaneRaw, 8}, {chunk.PlaneConstant, 1}, {chunk.PlaneHuff0, 3}, {chunk.PlaneZstd, 5}}
	for m, stored := range map[chunk.Method][]byte{chunk.Planes: stored, chunk.Planes | chunk.Delta: sealed("", stored)} {
		got, err := m.ParseHead(stored[:m.HeadBytes(l)], len(stored), l)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("method %#x: %v (%v)", byte(m), got, err)
		}
		if _, err := m.ParseHead(stored, len(stored)-1, l); err == nil || !strings.Contains(err.Error(), "1 bytes more") {
			t.Errorf("method %#x, too short: %v", byte(m), err)
		}
		if _, err := m.ParseHead(stored, len(stored)+1, l); err == nil {
			t.Errorf("method %#x, too long: no error", byte(m))
		}
	}
	stored[0] = 4
	if _, err := chunk.Planes.ParseHead(stored, len(stored), l); err == nil || !strings.Contains(err.Error(), "unknown codec 4") {
		t.Errorf("unknown codec: %v", err)
	}
	if n := chunk.Raw.HeadBytes(l) + chunk.Zstd.HeadBytes(l) + (chunk.Zstd | chunk.Delta).HeadBytes(l); n != 0 {
		t.Errorf("methods without planes have heads of %d bytes", n)
	}
}

// The head of every chunk that an encoder makes gives the size of each plane.
func TestParseHeadMatchesTheEncoder(t *testing.T) {
	e := newEncoder(t, chunk.Auto)
	met := map[chunk.PlaneCodec]bool{}
	for _, k := range chunktest.Kinds() {
		data, base := k.Make(rand.New(rand.NewPCG(1, 2)), 5000)
		stored, m := e.Encode(data, base, k.Layout)
		if m&^chunk.Delta != chunk.Planes {
			continue
		}
		head := bytes.Clone(stored[:m.HeadBytes(k.Layout)])
		all, err := m.ParseHead(head, len(stored), k.Layout)
		if err != nil || len(all) != k.Layout.Width {
			t.Errorf("%s: %v (%v)", k.Name, all, err)
		}
		for _, p := range all {
			met[p.Codec] = true
		}
	}
	if len(met) != 4 {
		t.Errorf("only the codecs %v were met", met)
	}
}

func TestParseCodecKnowsItsNames(t *testing.T) {
	for name, want := range map[string]chunk.Codec{"": chunk.Auto, "auto": chunk.Auto, "zstd": chunk.ZstdOnly, "none": chunk.None} {
		if got, err := chunk.ParseCodec(name); err != nil || got != want {
			t.Errorf("codec %q: %d (%v)", name, got, err)
		}
	}
	for _, name := range []string{"Auto", "lz4", strings.Repeat("\x7f", 1<<20)} {
		if _, err := chunk.ParseCodec(name); err == nil || len(err.Error()) > 500 {
			t.Errorf("codec %.10q: error %.100v", name, err)
		}
	}
	var names []string
	for c := range chunk.PlaneCodec(5) {
		names = append(names, c.String())
	}
	if got := strings.Join(names, ","); got != "raw,constant,huff0,zstd,plane codec 4" {
		t.Errorf("codecs of planes are called %s", got)
	}
}

func TestPlausible(t *testing.T) {
	for _, c := range []struct {
		method      chunk.Method
		stored, raw int
		width       int
		want        bool
	}{
		{chunk.Raw, 8, 8, 4, true},
		{chunk.Raw, 7, 8, 4, false},
		{chunk.Raw, 9, 8, 4, false},
		{chunk.Raw, 0, 0, 4, false},
		{chunk.Raw, -4, -4, 4, false},
		{chunk.Raw, 6, 6, 4, false},
		{chunk.Raw, 6, 6, 3, false},
		{chunk.Raw, 8, 8, 0, false},
		{chunk.Raw, 16, 16, 16, false},
		{chunk.Raw, chunk.MaxBytes, chunk.MaxBytes, 8, true},
		{chunk.Raw, chunk.MaxBytes + 8, chunk.MaxBytes + 8, 8, false},
		{chunk.Raw | chunk.Delta, 8, 8, 4, false},
		{chunk.Zstd, 1, 8, 4, true},
		{chunk.Zstd, 7, 8, 4, true},
		{chunk.Zstd, 8, 8, 4, false},
		{chunk.Zstd, 0, 8, 4, false},
		{chunk.Zstd | chunk.Delta, 7, 8, 4, true},
		{chunk.Zstd | chunk.Delta, 5, 8, 4, true},
		{chunk.Zstd | chunk.Delta, 4, 8, 4, false},
		{chunk.Zstd | chunk.Delta, 8, 8, 4, false},
		{chunk.Planes, 20, 24, 4, true},
		{chunk.Planes, 19, 24, 4, false},
		{chunk.Planes, 24, 24, 4, false},
		{chunk.Planes | chunk.Delta, 24, 28, 4, true},
		{chunk.Planes | chunk.Delta, 23, 28, 4, false},
		{3, 7, 8, 4, false},
		{0x42, 20, 24, 4, false},
		{0xff, 20, 24, 4, false},
	} {
		if got := c.method.Plausible(c.stored, c.raw, chunk.Layout{Width: c.width}); got != c.want {
			t.Errorf("%#x, %d of %d bytes, width %d: %t", byte(c.method), c.stored, c.raw, c.width, got)
		}
	}
}

// TestFormatDocumentShowsOurChunk compares the chunk in docs/format.md with the bytes that the package writes.
func TestFormatDocumentShowsOurChunk(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "format.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```chunk\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("the document has no chunk")
	}
	var digits strings.Builder
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	want, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for k := range 16 {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(-1-float32(k)/16))
	}
	l := chunk.Layout{Width: 4, Float: true}
	if got, m := newEncoder(t, chunk.Auto).Encode(raw, nil, l); m != chunk.Planes || !bytes.Equal(got, want) {
		t.Errorf("method %d:\n% x\nthe document says\n% x", m, got, want)
	}
	got := make([]byte, len(raw))
	if err := newDecoder(t).Decode(got, want, chunk.Planes, l, nil); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("the document's chunk decodes to % x (%v)", got, err)
	}
}
