package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

// TestShardIsRefused changes one thing in a shard and makes every checksum right again, the manifest's too: only what
// the bytes mean can give it away.
func TestShardIsRefused(t *testing.T) {
	t.Parallel()
	le := binary.LittleEndian
	sources := []Source{
		source("a", float32s, weights(1, 1200)),
		source("zeros", bytesLayout, make([]byte, 2000)),
		source("b", bytesLayout, noise(2, 8)),
	}
	good, _ := write(t, sources, WriteOptions{Codec: chunk.ZstdOnly})
	table := len(good) - trailerBytes - 3*entryBytes
	zeros := table + entryBytes
	tests := []struct {
		name   string
		change func(b []byte)
		want   string
	}{
		{"nothing", func([]byte) {}, ""},
		{"magic", func(b []byte) { b[0] = 'P' }, "not a shard"},
		{"version 0", func(b []byte) { b[8] = 0 }, "version is 0"},
		{"version 1", func(b []byte) { b[8] = 1 }, "manifest asks"},
		{"header's length", func(b []byte) { b[12] = 128 }, "constant"},
		{"step", func(b []byte) { b[16] = 2 }, "manifest asks"},
		{"shard", func(b []byte) { b[24] = 0 }, "manifest asks"},
		{"shards", func(b []byte) { b[28] = 2 }, "manifest asks"},
		{"pieces", func(b []byte) { b[32] = 4 }, "manifest asks"},
		{"chunks", func(b []byte) { le.PutUint32(b[36:], 1<<31) }, "manifest asks"},
		{"raw bytes", func(b []byte) { le.PutUint64(b[40:], 1<<60) }, "manifest asks"},
		{"chunk size", func(b []byte) { b[50] = 8 }, "constant"},
		{"reserved", func(b []byte) { b[59] = 1 }, "constant"},
		{"end", func(b []byte) { b[len(b)-1] = 0 }, "not the end"},
		{"table's offset", func(b []byte) { le.PutUint64(b[len(b)-32:], 64) }, "does not fit"},
		{"table's offset overflows", func(b []byte) { le.PutUint64(b[len(b)-32:], 1<<63) }, "does not fit"},
		{"table's length", func(b []byte) { le.PutUint64(b[len(b)-24:], 32) }, "does not fit"},
		{"table's length overflows", func(b []byte) { le.PutUint64(b[len(b)-24:], 1<<63) }, "does not fit"},
		{"stored bytes, fewer", func(b []byte) { le.PutUint32(b[zeros:], le.Uint32(b[zeros:])-1) }, "chunks end"},
		{"stored bytes, more", func(b []byte) { le.PutUint32(b[zeros:], le.Uint32(b[zeros:])+1) }, "chunks end"},
		{"stored bytes, none", func(b []byte) { le.PutUint32(b[zeros:], 0) }, `tensor "zeros": chunk 1 of 1`},
		{"stored bytes, as many as raw", func(b []byte) { le.PutUint32(b[zeros:], 2000) }, `tensor "zeros"`},
		{"stored bytes, 4 GiB", func(b []byte) { le.PutUint32(b[zeros:], math.MaxUint32) }, `tensor "zeros"`},
		{"raw bytes of a chunk", func(b []byte) { le.PutUint32(b[zeros+4:], 2001) }, `tensor "zeros"`},
		{"method", func(b []byte) { b[zeros+12] = 3 }, `tensor "zeros"`},
		{"raw difference", func(b []byte) { b[table+2*entryBytes+12] = 0x80 }, `tensor "b"`},
		{"compressed called raw", func(b []byte) { b[zeros+12] = 0 }, `tensor "zeros"`},
		{"reserved in the table", func(b []byte) { b[zeros+15] = 1 }, `tensor "zeros"`},
	}
	for _, test := range tests {
		b := bytes.Clone(good)
		test.change(b)
		_, err := tryOpen(reseal(b), sources)
		if test.want == "" {
			must(t, err)
		} else if damage := wantDamage(t, test.name, err); !strings.Contains(damage.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
}

func TestNewerVersion(t *testing.T) {
	t.Parallel()
	sources := mixture()[3:4]
	file, _ := write(t, sources, WriteOptions{})
	file[8] = 9
	_, err := tryOpen(file, sources)
	wantDamage(t, "a newer version, checksum wrong", err)
	_, err = tryOpen(reseal(file), sources)
	if newer, ok := errors.AsType[*Newer](err); !ok || newer.Version != 9 || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("error %v, want a *Newer with version 9", err)
	}
}

// TestPiecesAreRefused that no shard can hold, before anything is allocated for them.
func TestPiecesAreRefused(t *testing.T) {
	t.Parallel()
	for name, pieces := range map[string][]Piece{
		"negative":        {{"w", bytesLayout, -1}},
		"no width":        {{"w", chunk.Layout{}, 8}},
		"half an element": {{"w", float32s, 6}},
		"too long":        {{"w", bytesLayout, maxRawBytes + 1}},
		"sum overflows":   {{"v", bytesLayout, 8}, {"w", bytesLayout, math.MaxInt64}},
	} {
		_, err := Open(bytes.NewReader(nil), 1<<40, testHeader, pieces, 0)
		if damage := wantDamage(t, name, err); damage.Name != "w" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChunkIsRefused that has the right checksum and does not decode.
func TestChunkIsRefused(t *testing.T) {
	t.Parallel()
	sources := []Source{source("zeros", bytesLayout, make([]byte, 3*chunkBytes))}
	file, _ := write(t, sources, WriteOptions{Codec: chunk.ZstdOnly})
	r := open(t, file, sources)
	file[r.chunks[1].offset] ^= 0xff // the frame's magic
	r = open(t, reseal(file), sources)
	for what, err := range map[string]error{
		"Verify": r.Verify(t.Context(), 2),
		"Read":   r.Read(t.Context(), 0, chunkBytes+5, make([]byte, 10), 1),
	} {
		damage := wantDamage(t, what, err)
		if damage.Piece != 0 || damage.Name != "zeros" || !strings.HasPrefix(damage.Detail, "chunk 2 of 3: it does not decode") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, r.Read(t.Context(), 0, 0, make([]byte, chunkBytes), 1))
}
