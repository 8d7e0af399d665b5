package chunk_test

import (
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

func TestPlausible(t *testing.T) {
	for _, c := range []struct {
		method      chunk.Method
		stored, raw int
		width       int
		want        bool
	}{
		{chunk.Raw, 8, 8, 4, true},
		{chunk.Raw, 7, 8, 4, false},
		{chunk.Raw, 9, 8, 4, false},
		{chunk.Raw, 0, 0, 4, false},
		{chunk.Raw, -4, -4, 4, false},
		{chunk.Raw, 6, 6, 4, false},
		{chunk.Raw, 6, 6, 3, false},
		{chunk.Raw, 8, 8, 0, false},
		{chunk.Raw, 16, 16, 16, false},
		{chunk.Raw, chunk.MaxBytes, chunk.MaxBytes, 8, true},
		{chunk.Raw, chunk.MaxBytes + 8, chunk.MaxBytes + 8, 8, false},
		{chunk.Raw | chunk.Delta, 8, 8, 4, false},
		{chunk.Zstd, 1, 8, 4, true},
		{chunk.Zstd, 7, 8, 4, true},
		{chunk.Zstd, 8, 8, 4, false},
		{chunk.Zstd, 0, 8, 4, false},
		{chunk.Zstd | chunk.Delta, 7, 8, 4, true},
		{chunk.Zstd | chunk.Delta, 5, 8, 4, true},
		{chunk.Zstd | chunk.Delta, 4, 8, 4, false},
		{chunk.Zstd | chunk.Delta, 8, 8, 4, false},
		{chunk.Planes, 20, 24, 4, true},
		{chunk.Planes, 19, 24, 4, false},
		{chunk.Planes, 24, 24, 4, false},
		{chunk.Planes | chunk.Delta, 24, 28, 4, true},
		{chunk.Planes | chunk.Delta, 23, 28, 4, false},
		{3, 7, 8, 4, false},
		{0x42, 20, 24, 4, false},
		{0xff, 20, 24, 4, false},
	} {
		if got := c.method.Plausible(c.stored, c.raw, chunk.Layout{Width: c.width}); got != c.want {
			t.Errorf("%#x, %d of %d bytes, width %d: %t", byte(c.method), c.stored, c.raw, c.width, got)
		}
	}
}
