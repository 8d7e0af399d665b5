package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

// TestBadShardIsRefused changes one thing in a shard and corrects every checksum, including the manifest's, so only the meaning of the
// bytes can show the change.
func TestBadShardIsRefused(t *testing.T) {
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

func TestNewerVersionIsNotDamage(t *testing.T) {
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

// Pieces that no shard can hold are refused before anything is allocated for them.
func TestPiecesThatNoShardHoldsAreRefused(t *testing.T) {
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

// A chunk that does not decode is refused even if its checksum is right.
func TestChunkThatDoesNotDecodeIsRefused(t *testing.T) {
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

// These describe the golden shard of version 1. They come from its manifest and from the tests of package checkpoint.
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

func TestVersion1StaysReadable(t *testing.T) {
	t.Parallel()
	file := goldenFile(t)
	r, err := Open(bytes.NewReader(file), 180, goldenHeader, piecesOf(goldenSources), goldenCRC)
	must(t, err)
	defer r.Close()
	must(t, r.Verify(t.Context(), 2))
	wantData(t, r, goldenSources, 1)
	zeros := r.Stats()[1]
	if zeros.Stored >= 1000 || zeros.ByMethod[chunk.Zstd] != zeros.Stored {
		t.Errorf("zeros are said to be stored as %+v", zeros)
	}
}

// In version 1, chunks are raw or zstd, and Open refuses later methods.
func TestVersion1RefusesWhatCameLater(t *testing.T) {
	t.Parallel()
	file := goldenFile(t)
	method := len(file) - trailerBytes - 2*entryBytes + 12 // the method byte of the chunk of zeros
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

// Open detects every flipped bit outside the chunks without reading a chunk.
func TestOpenFindsEveryBitFlip(t *testing.T) {
	t.Parallel()
	sources := mixture()
	file, sum := write(t, sources, WriteOptions{})
	chunks := mustChunk(piecesOf(sources)).chunks()
	table := len(file) - trailerBytes - chunks*entryBytes
	for i := range file {
		if i == headerBytes {
			clear(file[headerBytes:table]) // Open must not read this
		}
		if headerBytes <= i && i < table {
			continue
		}
		for bit := range 8 {
			file[i] ^= 1 << bit
			_, err := Open(bytes.NewReader(file), sum.Size, testHeader, piecesOf(sources), sum.CRC)
			wantDamage(t, "flipped", err)
			file[i] ^= 1 << bit
		}
	}
	_, err := Open(bytes.NewReader(file), sum.Size, testHeader, piecesOf(sources), sum.CRC)
	must(t, err)
}

// TestVerifyFindsBitFlipsInData flips 2,000 random bits, one at a time. Verify must detect each flip and name the piece.
func TestVerifyFindsBitFlipsInData(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for name, codec := range codecs {
		sources := []Source{
			source("a", float32s, weights(1, 900)),
			source("b", bytesLayout, noise(2, 300)),
			source("c", bytesLayout, make([]byte, 3000)),
		}
		file, _ := write(t, sources, WriteOptions{Codec: codec})
		r := open(t, file, sources)
		ends := []int64{r.chunks[1].offset, r.chunks[2].offset, int64(len(file)) - trailerBytes - 3*entryBytes}
		for range 2000 / len(codecs) {
			at := headerBytes + random.IntN(int(ends[2])-headerBytes)
			bit := byte(1) << random.IntN(8)
			file[at] ^= bit
			damage := wantDamage(t, name, r.Verify(t.Context(), 1))
			file[at] ^= bit
			if p := damage.Piece; int64(at) >= ends[p] || p > 0 && int64(at) < ends[p-1] || damage.Name != sources[p].Name {
				t.Fatalf("%s: byte %d was changed, blamed is %q", name, at, damage.Name)
			}
		}
		must(t, r.Verify(t.Context(), 1))
	}
}

// Open detects a truncation at any byte, whether the caller passes the truncated size or the original one.
func TestOpenFindsEveryTruncation(t *testing.T) {
	t.Parallel()
	sources := mixture()[3:]
	file, sum := write(t, sources, WriteOptions{})
	for n := range file {
		cut := bytes.NewReader(file[:n])
		_, err := Open(cut, int64(n), testHeader, piecesOf(sources), sum.CRC)
		wantDamage(t, "size known", err)
		_, err = Open(cut, sum.Size, testHeader, piecesOf(sources), sum.CRC)
		wantDamage(t, "size not known", err)
	}
}

// Each way of reading a file that has shrunk names the chunk that was cut.
func TestShrunkFileBlamesTheCutChunk(t *testing.T) {
	t.Parallel()
	sources := []Source{source("w", bytesLayout, noise(1, 6*chunkBytes))}
	file, sum := write(t, sources, WriteOptions{})
	whole := open(t, file, sources)
	shrunk := &Reader{file: bytes.NewReader(file[:headerBytes+4*chunkBytes+9]), chunking: whole.chunking, chunks: whole.chunks}
	want := "chunk 5 of 6: the file ends at byte 1048649"
	dst := make([]byte, sum.Size)
	for what, err := range map[string]error{
		"Read":         shrunk.Read(t.Context(), 0, 0, dst[:6*chunkBytes], 1),
		"Read of part": shrunk.Read(t.Context(), 0, 4*chunkBytes+1, dst[:100], 1),
		"Verify":       shrunk.Verify(t.Context(), 1),
	} {
		if damage := wantDamage(t, what, err); damage.Detail != want {
			t.Errorf("%s: %v, want %q", what, damage, want)
		}
	}
}

func TestShardOfAnotherManifestIsRefused(t *testing.T) {
	t.Parallel()
	sources := mixture()
	file, sum := write(t, sources, WriteOptions{})
	pieces := piecesOf(sources)
	longer := append(pieces[:len(pieces):len(pieces)], Piece{"more", chunk.Layout{Width: 1}, 0})
	tests := []struct {
		name   string
		h      Header
		pieces []Piece
		crc    uint32
	}{
		{"step", Header{Version, 8, 1, 3}, pieces, sum.CRC},
		{"shard", Header{Version, 7, 2, 3}, pieces, sum.CRC},
		{"shards", Header{Version, 7, 1, 4}, pieces, sum.CRC},
		{"version", Header{1, 7, 1, 3}, pieces, sum.CRC},
		{"a piece more", testHeader, longer, sum.CRC},
		{"a piece less", testHeader, pieces[1:], sum.CRC},
		{"checksum", testHeader, pieces, sum.CRC ^ 1},
	}
	for _, test := range tests {
		_, err := Open(bytes.NewReader(file), sum.Size, test.h, test.pieces, test.crc)
		wantDamage(t, test.name, err)
	}
}

// TestPlaneStatsAddUpToTheStoredBytes compares the sizes of the planes with the stored bytes in the table.
func TestPlaneStatsAddUpToTheStoredBytes(t *testing.T) {
	t.Parallel()
	sources := mixture()
	delta, _, deltaFile, _ := deltaOf(t)
	full, _ := write(t, sources, WriteOptions{})
	zstd, _ := write(t, sources, WriteOptions{Codec: chunk.ZstdOnly})
	for _, test := range []struct {
		name     string
		r        *Reader
		overhead int64 // of a float32 chunk with planes: four entries, and a checksum if it is a difference
		planes   bool
	}{
		{"full", open(t, full, sources), 16, true},
		{"delta", open(t, deltaFile, delta), 20, true},
		{"zstd", open(t, zstd, sources), 0, false},
	} {
		got, err := test.r.PlaneStats(t.Context())
		must(t, err)
		var sum int64
		for _, n := range got[0] {
			sum += n
		}
		by := test.r.Stats()[0].ByMethod
		want := by[chunk.Planes] + by[chunk.Planes|chunk.Delta]
		for _, c := range test.r.chunks[:test.r.chunking.first[1]] {
			if c.method&^chunk.Delta == chunk.Planes {
				want -= test.overhead
			}
		}
		if (want > 0) != test.planes || test.planes && sum != want || !test.planes && sum != 0 {
			t.Errorf("%s: planes of %d bytes, want %d: %v", test.name, sum, want, got[0])
		}
	}
	// The exponents of weights are coded, and the mantissas are stored raw because they are noise.
	got, err := open(t, full, sources).PlaneStats(t.Context())
	must(t, err)
	if got[0][chunk.PlaneRaw] < 6*chunkBytes || got[0][chunk.PlaneHuff0]+got[0][chunk.PlaneZstd]+got[0][chunk.PlaneConstant] == 0 {
		t.Errorf("weights are stored as %v", got[0])
	}
	if n := got[4][chunk.PlaneConstant]; n != 2*2 || len(got[4]) != 1 { // a byte for each plane of two chunks; the third has one element
		t.Errorf("zeros are stored as %v", got[4])
	}
}

func TestPlaneStatsSaysWhyItFails(t *testing.T) {
	t.Parallel()
	sources := mixture()
	file, _ := write(t, sources, WriteOptions{})
	r := open(t, file, sources)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.PlaneStats(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	file[r.chunks[1].offset] = 4 // a codec that does not exist
	_, err := r.PlaneStats(t.Context())
	if damage := wantDamage(t, "codec 4", err); damage.Name != "long" {
		t.Errorf("codec 4: %v", err)
	}
	shrunk := &Reader{file: readNothing{}, chunking: r.chunking, chunks: r.chunks}
	if _, err := shrunk.PlaneStats(t.Context()); err == nil {
		t.Error("a file that gives nothing: no error")
	}
}
