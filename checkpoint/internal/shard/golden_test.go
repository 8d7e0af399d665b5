package shard

import (
	"bytes"
	"os"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

// What is in the golden shard of version 1, from its manifest and from checkpoint's tests.
var (
	goldenPath    = "../../testdata/v1/step-000000000007/shard-00000-of-00001.2-426b212b-00000001.ddpt"
	goldenHeader  = Header{Version: 1, Step: 7, Shard: 0, Shards: 1}
	goldenCRC     = uint32(0x042d52cb)
	goldenSources = []Source{
		source("ramp", float32s, []byte{0, 0, 0, 0, 0, 0, 0, 0x3f, 0, 0, 0x80, 0xbf, 0, 0, 0, 0x40}), // 0, 0.5, -1, 2
		source("zeros", bytesLayout, make([]byte, 1000)),                                             // a zstd frame
		source("empty", chunk.Layout{Width: 8}, nil),
		source("count", chunk.Layout{Width: 8}, []byte{0x34, 0x12, 0, 0, 0, 0, 0, 0}),
	}
)

func goldenFile(t testing.TB) []byte {
	t.Helper()
	file, err := os.ReadFile(goldenPath)
	must(t, err)
	return file
}

func TestGoldenVersion1(t *testing.T) {
	t.Parallel()
	file := goldenFile(t)
	r, err := Open(bytes.NewReader(file), 180, goldenHeader, piecesOf(goldenSources), goldenCRC)
	must(t, err)
	defer r.Close()
	must(t, r.Verify(t.Context(), 2))
	wantData(t, r, goldenSources, 1)
	zeros := r.Stats().Pieces[1]
	if zeros.Chunks != 1 || zeros.Raw != 1000 || zeros.Stored >= 1000 || zeros.ByMethod[chunk.Zstd] != zeros.Stored {
		t.Errorf("zeros are said to be stored as %+v", zeros)
	}
}

// TestVersion1RefusesWhatCameLater: in version 1 chunks are raw or zstd.
func TestVersion1RefusesWhatCameLater(t *testing.T) {
	t.Parallel()
	file := goldenFile(t)
	method := len(file) - trailerBytes - 2*entryBytes + 12 // of zeros
	for _, m := range []chunk.Method{chunk.Planes, chunk.Delta | chunk.Zstd, chunk.Delta | chunk.Planes} {
		b := bytes.Clone(file)
		b[method] = byte(m)
		b = reseal(b)
		_, err := Open(bytes.NewReader(b), 180, goldenHeader, piecesOf(goldenSources), crcOf(b))
		if damage := wantDamage(t, "method", err); damage.Name != "zeros" {
			t.Errorf("method %#x: %v", m, damage)
		}
	}
}
