package shard

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

// TestBitFlips: Open finds every flipped bit outside the chunks, without reading one.
func TestBitFlips(t *testing.T) {
	t.Parallel()
	sources := mixture()
	file, sum := write(t, sources, WriteOptions{})
	chunks := mustPlan(piecesOf(sources)).chunks()
	table := len(file) - trailerBytes - chunks*entryBytes
	for i := range file {
		if i == headerBytes {
			clear(file[headerBytes:table]) // Open must not look
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

// TestBitFlipsInData: Verify finds 2,000 random ones, each alone, and names the piece.
func TestBitFlipsInData(t *testing.T) {
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

// TestTruncation: a file that ends anywhere is found out by Open, whether the caller knows its true size or not.
func TestTruncation(t *testing.T) {
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

// TestFileShrinks after it was opened: the chunk that is cut is blamed, in each way of reading.
func TestFileShrinks(t *testing.T) {
	t.Parallel()
	sources := []Source{source("w", bytesLayout, noise(1, 6*chunkBytes))}
	file, sum := write(t, sources, WriteOptions{})
	whole := open(t, file, sources)
	shrunk := &Reader{file: bytes.NewReader(file[:headerBytes+4*chunkBytes+9]), plan: whole.plan, chunks: whole.chunks}
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

// TestWrongFile: a good shard that is not the one of the manifest.
func TestWrongFile(t *testing.T) {
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
