package crc32c

import (
	"bytes"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// noise is n bytes, the same ones for the same n.
func noise(n int) []byte {
	rng := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	data := make([]byte, n)
	rng.Read(data)
	return data
}

// TestPublished has the examples of RFC 3720, B.4, and the one by which CRCs are known.
func TestPublished(t *testing.T) {
	up := make([]byte, 32)
	for i := range up {
		up[i] = byte(i)
	}
	down := bytes.Clone(up)
	for i := range down {
		down[i] = 31 - up[i]
	}
	for _, tt := range []struct {
		data []byte
		want uint32
	}{
		{nil, 0},
		{[]byte("123456789"), 0xe3069283},
		{make([]byte, 32), 0x8a9136aa},
		{bytes.Repeat([]byte{0xff}, 32), 0x62a8ab43},
		{up, 0x46dd794e},
		{down, 0x113fdb5c},
	} {
		if got := Checksum(tt.data); got != tt.want {
			t.Errorf("%x: %08x, want %08x", tt.data, got, tt.want)
		}
	}
}

// TestEveryLength compares with the standard library: each length, at each address modulo the longest vector, after any checksum.
func TestEveryLength(t *testing.T) {
	t.Parallel()
	const longest, vector = 5000, 64
	data := noise(longest + vector)
	step := 1
	if testing.Short() {
		step = 7
	}
	for at := 0; at < vector; at += step {
		crc := rand.Uint32()
		for n := range longest + 1 {
			p := data[at : at+n]
			want := crc32.Update(crc, table, p)
			if got := Update(crc, p); got != want {
				t.Fatalf("%d bytes at %d after %08x: %08x, want %08x", n, at, crc, got, want)
			}
			if got := ahead(crc, p); got != want {
				t.Fatalf("%d bytes at %d after %08x, without assembly: %08x, want %08x", n, at, crc, got, want)
			}
		}
	}
}

// TestLong crosses the lengths at which long inputs are cut.
func TestLong(t *testing.T) {
	t.Parallel()
	const piece = 256 << 10
	data := noise(2*piece + 1100)
	for _, at := range []int{piece, 2 * piece} {
		for n := at - 70; n < at+1100; n += 3 {
			if got, want := Checksum(data[:n]), crc32.Checksum(data[:n], table); got != want {
				t.Fatalf("%d bytes: %08x, want %08x", n, got, want)
			}
		}
	}
}

// TestUpdates: data may come in any pieces.
func TestUpdates(t *testing.T) {
	t.Parallel()
	data := noise(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, 100).Draw(t, "at")
		n := rapid.OneOf(rapid.IntRange(0, 5000), rapid.IntRange(0, len(data)-at)).Draw(t, "n")
		whole := data[at : at+n]
		got, rest := Checksum(nil), whole
		for i := rapid.IntRange(0, 6).Draw(t, "cuts"); i > 0; i-- {
			cut := rapid.OneOf(rapid.IntRange(0, min(700, len(rest))), rapid.IntRange(0, len(rest))).Draw(t, "cut")
			got, rest = Update(got, rest[:cut]), rest[cut:]
		}
		if got, want := Update(got, rest), crc32.Checksum(whole, table); got != want {
			t.Fatalf("%08x, want %08x", got, want)
		}
	})
}

func FuzzUpdate(f *testing.F) {
	f.Add(uint32(0), []byte("123456789"), 4)
	f.Add(uint32(1), noise(511), 1)
	f.Add(^uint32(0), noise(512), 0)
	f.Add(uint32(2), noise(1024), 512)
	f.Add(uint32(3), noise(1663), 640)
	f.Fuzz(func(t *testing.T, crc uint32, data []byte, cut int) {
		cut = min(max(cut, 0), len(data))
		want := crc32.Update(crc, table, data)
		if got := Update(Update(crc, data[:cut]), data[cut:]); got != want {
			t.Fatalf("%d bytes, then %d: %08x, want %08x", cut, len(data)-cut, got, want)
		}
		if got := Update(crc, data); got != want {
			t.Fatalf("%d bytes: %08x, want %08x", len(data), got, want)
		}
	})
}

// TestDigest writes in pieces that fit nothing.
func TestDigest(t *testing.T) {
	data := noise(100_000)
	var d Digest
	n, err := io.CopyBuffer(&d, struct{ io.Reader }{bytes.NewReader(data)}, make([]byte, 1237))
	if n != int64(len(data)) || err != nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if got, want := d.Sum32(), crc32.Checksum(data, table); got != want {
		t.Errorf("%08x, want %08x", got, want)
	}
}
