package chunk_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/chunk/chunktest"
)

// Chunks written by hand: the head says what is in them.
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
	if _, err := chunk.Planes.ParseHead(stored, len(stored), l); err == nil || !strings.Contains(err.Error(), "no codec 4") {
		t.Errorf("unknown codec: %v", err)
	}
	if n := chunk.Raw.HeadBytes(l) + chunk.Zstd.HeadBytes(l) + (chunk.Zstd | chunk.Delta).HeadBytes(l); n != 0 {
		t.Errorf("methods without planes have heads of %d bytes", n)
	}
}

// Every chunk that an encoder makes says of each plane what it takes.
func TestParseHeadOfEncoded(t *testing.T) {
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

func TestNames(t *testing.T) {
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
