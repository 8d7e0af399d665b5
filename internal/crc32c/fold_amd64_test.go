//go:build !noasm

package crc32c

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestFactorsMoveABlockByItsDistance checks the factors by long multiplication: the sum of the two products has the same CRC as the 16
// bytes followed by as many zero bits as the distance.
func TestFactorsMoveABlockByItsDistance(t *testing.T) {
	for i, bits := range []int{4096, 2048, 1024, 512, 384, 256, 128} {
		for range 200 {
			block := make([]byte, 16+bits/8)
			a, b := rand.Uint64(), rand.Uint64()
			binary.LittleEndian.PutUint64(block, a)
			binary.LittleEndian.PutUint64(block[8:], b)
			lowA, highA := product(a, folds[i][0])
			lowB, highB := product(b, folds[i][1])
			moved := binary.LittleEndian.AppendUint64(nil, lowA^lowB)
			moved = binary.LittleEndian.AppendUint64(moved, highA^highB)
			if got, want := register(moved), register(block); got != want {
				t.Fatalf("%016x %016x and %d bits: %08x, want %08x", a, b, bits, got, want)
			}
		}
	}
	if folds[7] != [2]uint64{} {
		t.Errorf("the last quarter is moved, by %x", folds[7])
	}
}

// register returns the register of a CRC that begins with 0, after p.
func register(p []byte) uint32 { return ^crc32.Update(^uint32(0), table, p) }

// product returns a * b without carries.
func product(a, b uint64) (low, high uint64) {
	for i := range 64 {
		if b>>i&1 != 0 {
			low ^= a << i
			high ^= a >> 1 >> (63 - i)
		}
	}
	return low, high
}

// TestFoldTakesLongInputs: if the CPU supports it, fold takes long inputs, and leaves at most a short rest to the standard library.
func TestFoldTakesLongInputs(t *testing.T) {
	if !canFold {
		t.Skip("this CPU has no AVX-512 with VPCLMULQDQ")
	}
	data := noise(foldAtOnce + foldFrom + 100)
	for n := range 2000 {
		crc, rest := fold(0, data[:n])
		taken := n - len(rest)
		if n < foldFrom != (taken == 0) || len(rest) >= foldFrom || crc != crc32.Checksum(data[:taken], table) {
			t.Fatalf("of %d bytes it took %d, with checksum %08x", n, taken, crc)
		}
	}
	if _, rest := fold(0, data); len(rest) >= foldFrom {
		t.Errorf("of %d bytes it left %d", len(data), len(rest))
	}
}
