package checkpoint

import (
	"context"
	"path/filepath"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
)

// benchState returns 16 MiB of float32 that look like weights to a compressor: their mantissas are noise.
func benchState() *State {
	data := make([]byte, 16<<20)
	fillNoise(data, 1)
	for i := 3; i < len(data); i += 4 {
		data[i] = 0x3c + data[i]&0x81
	}
	return &State{Step: 1, World: 1, Tensors: []Tensor{{Name: "w", DType: "float32", Shape: []int{4 << 20}, Data: data}}}
}

// benchCases runs f for both codecs, on disk and in memory. The runs in memory show the cost without the disk.
func benchCases(b *testing.B, f func(b *testing.B, d *Dir, s *State)) {
	s := benchState()
	for _, codec := range []string{"none", "zstd"} {
		b.Run("disk/"+codec, func(b *testing.B) {
			d, err := Open(filepath.Join(b.TempDir(), "checkpoints"), Options{Codec: codec, Keep: Policy{Last: 2}})
			must(b, err)
			f(b, d, s)
		})
		b.Run("mem/"+codec, func(b *testing.B) {
			d, err := Open("/checkpoints", Options{FS: vfstest.NewMem(), Codec: codec, Keep: Policy{Last: 2}})
			must(b, err)
			f(b, d, s)
		})
	}
}

func BenchmarkSave(b *testing.B) {
	benchCases(b, func(b *testing.B, d *Dir, s *State) {
		b.SetBytes(16 << 20)
		b.ReportAllocs()
		for b.Loop() {
			s.Step++
			save(b, d, s)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	benchCases(b, func(b *testing.B, d *Dir, s *State) {
		save(b, d, s)
		b.SetBytes(16 << 20)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Load(context.Background(), s.Step); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkLatest finds the newest of 100 small checkpoints.
func BenchmarkLatest(b *testing.B) {
	d, err := Open(filepath.Join(b.TempDir(), "checkpoints"), Options{})
	must(b, err)
	for step := range int64(100) {
		save(b, d, testState(step, 0))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := d.Latest(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
