package crc32c

import (
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"
)

// TestCombine compares combined checksums of random splits with the standard library's of the whole.
func TestCombine(t *testing.T) {
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

// TestCombineLongLengths: lengths that no test can hold in memory follow from shorter ones, as a string of m + n bytes is one of m, then n.
func TestCombineLongLengths(t *testing.T) {
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
