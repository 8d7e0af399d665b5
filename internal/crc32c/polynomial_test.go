package crc32c

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// remainder is x^n modulo P by long division, a bit at a time, in the order in which RFC 3720, 12.1, writes P: bit 0 is that of x^0.
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

func TestPower(t *testing.T) {
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

// TestTimes: multiplication distributes, commutes, and has 1.
func TestTimes(t *testing.T) {
	for range 1000 {
		a, b, c := rand.Uint32(), rand.Uint32(), rand.Uint32()
		if times(a, b^c) != times(a, b)^times(a, c) || times(a, b) != times(b, a) || times(a, 1<<31) != a {
			t.Fatalf("%08x, %08x, %08x", a, b, c)
		}
	}
}
