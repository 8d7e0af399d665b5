package main

import (
	"testing"

	"ddpbatch/mpi"
)

// The bits are those of IEEE 754's binary16, and of the upper half of its binary32.
func TestHalvesOf(t *testing.T) {
	for x, want := range map[int64]struct {
		float  mpi.Float16
		bfloat mpi.BFloat16
	}{
		0: {0, 0}, 1: {0x3c00, 0x3f80}, -1: {0xbc00, 0xbf80}, 2: {0x4000, 0x4000}, 7: {0x4700, 0x40e0}, 252: {0x5be0, 0x437c},
		256: {0x5c00, 0x4380}, 1 << 15: {0x7800, 0x4700}, 1 << 16: {0x7c00, 0x4780}, 1 << 32: {0x7c00, 0x4f80},
	} {
		if got := float16Of(x); got != want.float {
			t.Errorf("float16 of %d is %#x, want %#x", x, uint16(got), uint16(want.float))
		}
		if got := bfloat16Of(x); got != want.bfloat {
			t.Errorf("bfloat16 of %d is %#x, want %#x", x, uint16(got), uint16(want.bfloat))
		}
	}
}
