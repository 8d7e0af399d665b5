package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"

	"go.uber.org/goleak"
)

var (
	bytesLayout = chunk.Layout{Width: 1}
	float32s    = chunk.Layout{Width: 4, Float: true}
	testHeader  = Header{Version: Version, Step: 7, Shard: 1, Shards: 3}
)

// noise returns n bytes that no codec can compress.
func noise(seed uint64, n int) []byte {
	random, data := rand.NewPCG(seed, 1), make([]byte, n)
	fill := data
	for ; len(fill) >= 8; fill = fill[8:] {
		binary.LittleEndian.PutUint64(fill, random.Uint64())
	}
	for i := range fill {
		fill[i] = byte(random.Uint64())
	}
	return data
}

// weights returns n bytes of float32 with noise in the mantissas and few exponents.
func weights(seed uint64, n int) []byte {
	data := noise(seed, n)
	for i := 3; i < n; i += 4 {
		data[i] = 0x3c + data[i]&0x81
	}
	return data
}

func source(name string, layout chunk.Layout, data []byte) Source {
	return Source{Piece: Piece{Name: name, Layout: layout, Length: int64(len(data))}, Data: data}
}

// mixture returns pieces of all kinds: longer than a chunk, shorter, empty, compressible and incompressible.
func mixture() []Source {
	return []Source{
		source("long", float32s, weights(1, 9*chunkBytes+40)),
		source("empty", float32s, nil),
		source("noise", bytesLayout, noise(2, 3*chunkBytes)),
		source("scalar", chunk.Layout{Width: 8}, []byte{1, 2, 3, 4, 5, 6, 7, 8}),
		source("zeros", chunk.Layout{Width: 2, Float: true}, make([]byte, 2*chunkBytes+2)),
		source("small", float32s, weights(3, 1000)),
	}
}

// write returns the shard of sources, and the Sum that Write returns.
func write(t testing.TB, sources []Source, o WriteOptions) ([]byte, Sum) {
	t.Helper()
	var file bytes.Buffer
	sum, err := Write(context.Background(), &file, testHeader, sources, o)
	must(t, err)
	return file.Bytes(), sum
}

func open(t testing.TB, file []byte, sources []Source) *Reader {
	t.Helper()
	r, err := tryOpen(file, sources)
	must(t, err)
	t.Cleanup(r.Close)
	return r
}

// tryOpen opens a file that claims to be the shard of sources. It expects the checksum that the file has.
func tryOpen(file []byte, sources []Source) (*Reader, error) {
	return Open(bytes.NewReader(file), int64(len(file)), testHeader, piecesOf(sources), crcOf(file))
}

// crcOf computes the checksum of all bytes with the standard library.
func crcOf(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// wantData reads every piece in full and compares it.
func wantData(t testing.TB, r *Reader, sources []Source, workers int) {
	t.Helper()
	for i, s := range sources {
		got := make([]byte, s.Length)
		if err := r.Read(context.Background(), i, 0, got, workers); err != nil {
			t.Fatalf("piece %d: %v", i, err)
		}
		if !bytes.Equal(got, s.Data) {
			t.Fatalf("piece %d (%q, %d bytes) is read as other bytes", i, s.Name, s.Length)
		}
	}
}

func wantDamage(t testing.TB, what string, err error) *Damage {
	t.Helper()
	damage, ok := errors.AsType[*Damage](err)
	if !ok {
		t.Fatalf("%s: error %v, want a *Damage", what, err)
	}
	return damage
}

// reseal returns a copy of a shard with every checksum corrected, including those of chunks, as far as the lengths allow.
func reseal(file []byte) []byte {
	b := slices.Clone(file)
	if len(b) < headerBytes+trailerBytes {
		return b
	}
	le, trailer := binary.LittleEndian, b[len(b)-trailerBytes:]
	le.PutUint32(b[60:], crcOf(b[:60]))
	if at, n := le.Uint64(trailer[0:]), le.Uint64(trailer[8:]); at < uint64(len(b)) && n <= uint64(len(b))-at {
		rest := b[headerBytes:]
		for table := b[at : at+n]; len(table) >= entryBytes; table = table[entryBytes:] {
			stored := rest[:min(int(le.Uint32(table)), len(rest))]
			le.PutUint32(table[8:], crcOf(stored))
			rest = rest[len(stored):]
		}
		le.PutUint32(trailer[16:], crcOf(b[at:at+n]))
	}
	le.PutUint32(trailer[20:], crcOf(trailer[:20]))
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
