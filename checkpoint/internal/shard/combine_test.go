package shard

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestCombine compares combined checksums of random splits with the standard library's of the whole.
func TestCombine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(t, "data")
		data = bytes.Repeat(data, rapid.IntRange(1, 50).Draw(t, "times"))
		got, rest := crcOf(nil), data
		for i := rapid.IntRange(0, 5).Draw(t, "cuts"); i > 0; i-- {
			n := rapid.IntRange(0, len(rest)).Draw(t, "cut")
			got, rest = combine(got, crcOf(rest[:n]), int64(n)), rest[n:]
		}
		if got, want := combine(got, crcOf(rest), int64(len(rest))), crcOf(data); got != want {
			t.Fatalf("combined %08x, of the whole %08x", got, want)
		}
	})
}

// TestShiftOfLongLengths: lengths that no test can hold in memory follow from shorter ones, x^m x^n = x^(m+n).
func TestShiftOfLongLengths(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, n := rapid.Int64Range(0, 1<<62-1).Draw(t, "m"), rapid.Int64Range(0, 1<<62-1).Draw(t, "n")
		if got, want := times(shift(m), shift(n)), shift(m+n); got != want {
			t.Fatalf("%08x, want %08x", got, want)
		}
	})
}

func BenchmarkCombine(b *testing.B) {
	var crc uint32
	for b.Loop() {
		crc = combine(crc, 0x12345678, 173_511)
	}
}
