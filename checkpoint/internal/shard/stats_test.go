package shard

import (
	"context"
	"errors"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

// TestPlaneStats holds the planes of every piece against the stored bytes of the table.
func TestPlaneStats(t *testing.T) {
	t.Parallel()
	sources := mixture()
	delta, _, deltaFile, _ := deltaOf(t)
	full, _ := write(t, sources, WriteOptions{})
	zstd, _ := write(t, sources, WriteOptions{Codec: chunk.ZstdOnly})
	for _, test := range []struct {
		name     string
		r        *Reader
		overhead int64 // of a chunk with planes of float32: four entries, and a checksum if it is a difference
		planes   bool
	}{
		{"full", open(t, full, sources), 16, true},
		{"delta", open(t, deltaFile, delta), 20, true},
		{"zstd", open(t, zstd, sources), 0, false},
	} {
		got, err := test.r.PlaneStats(t.Context())
		must(t, err)
		var sum int64
		for _, n := range got[0] {
			sum += n
		}
		by := test.r.Stats().Pieces[0].ByMethod
		want := by[chunk.Planes] + by[chunk.Planes|chunk.Delta]
		for _, c := range test.r.chunks[:test.r.plan.first[1]] {
			if c.method&^chunk.Delta == chunk.Planes {
				want -= test.overhead
			}
		}
		if (want > 0) != test.planes || test.planes && sum != want || !test.planes && sum != 0 {
			t.Errorf("%s: planes of %d bytes, want %d: %v", test.name, sum, want, got[0])
		}
	}
	// Of weights the exponents are coded, and the mantissas are noise.
	got, err := open(t, full, sources).PlaneStats(t.Context())
	must(t, err)
	if got[0][chunk.PlaneRaw] < 6*chunkBytes || got[0][chunk.PlaneHuff0]+got[0][chunk.PlaneZstd]+got[0][chunk.PlaneConstant] == 0 {
		t.Errorf("weights are stored as %v", got[0])
	}
	if n := got[4][chunk.PlaneConstant]; n != 2*2 || len(got[4]) != 1 { // a byte for each plane of two chunks; the third has one element
		t.Errorf("zeros are stored as %v", got[4])
	}
}

func TestPlaneStatsFails(t *testing.T) {
	t.Parallel()
	sources := mixture()
	file, _ := write(t, sources, WriteOptions{})
	r := open(t, file, sources)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.PlaneStats(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	file[r.chunks[1].offset] = 4 // a codec that there is not
	_, err := r.PlaneStats(t.Context())
	if damage := wantDamage(t, "codec 4", err); damage.Name != "long" {
		t.Errorf("codec 4: %v", err)
	}
	shrunk := &Reader{file: readNothing{}, plan: r.plan, chunks: r.chunks}
	if _, err := shrunk.PlaneStats(t.Context()); err == nil {
		t.Error("a file that gives nothing: no error")
	}
}
