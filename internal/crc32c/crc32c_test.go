package crc32c

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// noise returns n bytes, and always the same ones for the same n.
func noise(n int) []byte {
	rng := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	data := make([]byte, n)
	rng.Read(data)
	return data
}

// TestChecksumGivesThePublishedExamples uses the examples of RFC 3720, B.4, and the usual check value of CRCs.
func TestChecksumGivesThePublishedExamples(t *testing.T) {
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

// TestChecksumIsRightForEveryLength compares each length, at each address modulo the longest vector and after any checksum, with the
// standard library.
func TestChecksumIsRightForEveryLength(t *testing.T) {
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

// TestChecksumIsRightWhereLongInputsAreCut uses lengths around those at which long inputs are cut.
func TestChecksumIsRightWhereLongInputsAreCut(t *testing.T) {
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

func TestDataMayComeInAnyPieces(t *testing.T) {
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

// TestCombineGivesTheWholesChecksum compares combined checksums of random splits with the standard library's checksum of the whole.
func TestCombineGivesTheWholesChecksum(t *testing.T) {
	t.Parallel()
	data := noise(250_000)
	rapid.Check(t, func(t *rapid.T) {
		whole := data[:rapid.IntRange(0, len(data)).Draw(t, "n")]
		got, rest := uint32(0), whole
		for i := rapid.IntRange(0, 5).Draw(t, "cuts"); i > 0; i-- {
			n := rapid.IntRange(0, len(rest)).Draw(t, "cut")
			got, rest = Combine(got, crc32.Checksum(rest[:n], table), int64(n)), rest[n:]
		}
		if got, want := Combine(got, crc32.Checksum(rest, table), int64(len(rest))), crc32.Checksum(whole, table); got != want {
			t.Fatalf("combined %08x, of the whole %08x", got, want)
		}
	})
}

// TestCombineTakesLongLengths checks lengths that no test can hold in memory. They follow from shorter ones, because a string of m + n
// bytes is one of m bytes and then one of n bytes.
func TestCombineTakesLongLengths(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, n := rapid.Int64Range(0, 1<<62-1).Draw(t, "m"), rapid.Int64Range(0, 1<<62-1).Draw(t, "n")
		a, b, c := rapid.Uint32().Draw(t, "a"), rapid.Uint32().Draw(t, "b"), rapid.Uint32().Draw(t, "c")
		if got, want := Combine(Combine(a, b, m), c, n), Combine(a, Combine(b, c, n), m+n); got != want {
			t.Fatalf("%08x, want %08x", got, want)
		}
	})
}

func BenchmarkCombine(b *testing.B) {
	var crc uint32
	for b.Loop() {
		crc = Combine(crc, 0x12345678, 173_511)
	}
}

// remainder computes x^n modulo P by long division, one bit at a time. The bits are in the order in which RFC 3720, 12.1, writes P: bit 0
// is the coefficient of x^0.
func remainder(n int) uint32 {
	const p = 0x11edc6f41
	r := uint64(1)
	for range n {
		if r <<= 1; r>>32 != 0 {
			r ^= p
		}
	}
	return uint32(r)
}

func TestPowerIsTheRemainderOfAPower(t *testing.T) {
	for n := range 5000 {
		if got, want := power(uint64(n), 0), bits.Reverse32(remainder(n)); got != want {
			t.Fatalf("x^%d is %08x, want %08x", n, got, want)
		}
	}
	for k := range 4 {
		if got, want := power(123, k), bits.Reverse32(remainder(123<<k)); got != want {
			t.Errorf("x^(123 * 2^%d) is %08x, want %08x", k, got, want)
		}
	}
}

// TestTimesDistributesAndCommutes: multiplication distributes over addition, commutes, and has a unit.
func TestTimesDistributesAndCommutes(t *testing.T) {
	for range 1000 {
		a, b, c := rand.Uint32(), rand.Uint32(), rand.Uint32()
		if times(a, b^c) != times(a, b)^times(a, c) || times(a, b) != times(b, a) || times(a, 1<<31) != a {
			t.Fatalf("%08x, %08x, %08x", a, b, c)
		}
	}
}

// BenchmarkChecksum compares Checksum, the standard library's checksum, and the same with lines read ahead. It takes bytes in the cache and
// bytes in no cache.
func BenchmarkChecksum(b *testing.B) {
	sides := []struct {
		name     string
		checksum func([]byte) uint32
	}{
		{"ours", Checksum},
		{"ahead", func(p []byte) uint32 { return ahead(0, p) }},
		{"standard", func(p []byte) uint32 { return crc32.Checksum(p, table) }},
	}
	for _, n := range []int{64, 512, 4 << 10, 64 << 10, 256 << 10} {
		data := make([]byte, n)
		for _, side := range sides {
			b.Run(fmt.Sprintf("cache/%d/%s", n, side.name), func(b *testing.B) { checksums(b, data, n, side.checksum) })
		}
	}
	const block = 256 << 10 // a chunk of a checkpoint
	data := make([]byte, 256<<20)
	for i := range data {
		data[i] = 1 // so that the pages exist
	}
	for _, side := range sides {
		b.Run("memory/"+side.name, func(b *testing.B) { checksums(b, data, block, side.checksum) })
	}
}

// checksums computes the checksum of each block of data in turn.
func checksums(b *testing.B, data []byte, block int, checksum func([]byte) uint32) {
	b.SetBytes(int64(block))
	for at := 0; b.Loop(); at = (at + block) % len(data) {
		checksum(data[at : at+block])
	}
}
