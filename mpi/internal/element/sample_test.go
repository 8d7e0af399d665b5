package element

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// allTypes and allOps return all types and operations, in the order of their codes.
func allTypes() (list []Type) {
	for t := range Type(math.MaxUint8) {
		if t.Valid() {
			list = append(list, t)
		}
	}
	return list
}

func allOps() (list []Op) {
	for op := range Op(math.MaxUint8) {
		if op.Valid() {
			list = append(list, op)
		}
	}
	return list
}

// part returns the type of t's real and imaginary parts, or t itself if it has no such parts.
func part(t Type) Type {
	switch t {
	case Complex64:
		return Float32
	case Complex128:
		return Float64
	}
	return t
}

// specials are the encodings that float code often handles wrongly.
var specials = map[Type][]uint64{
	Float32:  specialsOf(8, 23),
	Float64:  specialsOf(11, 52),
	Float16:  specialsOf(5, 10),
	BFloat16: specialsOf(8, 7),
}

// specialsOf returns both zeros, infinities, quiet and signaling NaNs, the smallest and largest subnormal and normal numbers, 1 and the
// number before 1.
func specialsOf(exponent, fraction int) (list []uint64) {
	sign := uint64(1) << (exponent + fraction)
	infinity := uint64(1<<exponent-1) << fraction
	one := uint64(1<<(exponent-1)-1) << fraction
	quiet := infinity | 1<<(fraction-1)
	for _, bits := range []uint64{0, 1, 1<<fraction - 1, 1 << fraction, infinity - 1, infinity, infinity + 1, quiet,
		sign - 1, one, one - 1} {
		list = append(list, bits, bits|sign)
	}
	return list
}

// sample returns n elements of t with random bytes. If t has special values, about one third of the elements are special.
func sample(rng *rand.Rand, t Type, n int) []byte {
	b := make([]byte, n*t.Size())
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	size := part(t).Size()
	for at := 0; at < len(b); at += size {
		if list := specials[part(t)]; list != nil && rng.IntN(3) == 0 {
			var word [8]byte
			binary.NativeEndian.PutUint64(word[:], list[rng.IntN(len(list))])
			copy(b[at:at+size], word[:]) // the low bytes come first; mpi refuses big-endian machines
		}
	}
	return b
}

// same compares elements of t bit for bit, except that all NaNs are equal.
func same(tb testing.TB, t Type, got, want []byte) bool {
	tb.Helper()
	if bytes.Equal(got, want) {
		return true
	}
	size := part(t).Size()
	for at := 0; at < len(want); at += size {
		g, w := got[at:at+size], want[at:at+size]
		if !bytes.Equal(g, w) && !(isNaN(part(t), g) && isNaN(part(t), w)) {
			tb.Errorf("%v at byte %d of %d: %x, want %x", t, at, len(want), g, w)
			return false
		}
	}
	return true
}

func isNaN(t Type, b []byte) bool {
	switch t {
	case Float32:
		return math.IsNaN(float64(View[float32](b)[0]))
	case Float64:
		return math.IsNaN(View[float64](b)[0])
	case Float16:
		return View[F16](b)[0]&0x7fff > 0x7c00
	case BFloat16:
		return View[BF16](b)[0]&0x7fff > 0x7f80
	}
	return false
}

func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
