package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestStorage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoints")
	d, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]float32, 1<<20)
	state := &State{Step: 7, World: 1, Tensors: []Tensor{
		Float32Tensor("zeros", []int{1 << 20}, zeros), Float32Tensor("empty", []int{0}, nil), Float32Tensor("one", nil, []float32{3}),
	}}
	first, err := d.Save(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.Save(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range []Info{first, second} {
		c, err := d.FindFolder(t.Context(), filepath.Base(info.Path))
		if err != nil {
			t.Fatal(err)
		}
		if c.Info().Path != info.Path {
			t.Errorf("found %s, want %s", c.Info().Path, info.Path)
		}
		list, err := c.Storage(t.Context())
		if err != nil || len(list) != 3 {
			t.Fatal(list, err)
		}
		for i, s := range list {
			sum := int64(0)
			for _, n := range s.Codecs {
				sum += n
			}
			heads := [3]int64{0: 16 * 4 * 4}[i] // 4 bytes for each of 4 planes of 16 chunks
			if sum+heads != s.Stored || s.Delta != 0 {
				t.Errorf("tensor %d: %d bytes in all, %d by codec, %d of differences", i, s.Stored, sum, s.Delta)
			}
		}
		if zeros := list[0].Stored; zeros <= 0 || zeros > 1<<16 || list[1].Stored != 0 || list[0].Codecs["constant"] != 16*4 || list[2].Codecs["raw"] != 4 {
			t.Errorf("stored as %v", list)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"step-000000000008", "..", "elsewhere", "step-7", ""} {
		if _, err := d.FindFolder(t.Context(), name); !errors.Is(err, ErrNone) {
			t.Errorf("%q: error %v, want none", name, err)
		}
	}
	shards, err := filepath.Glob(filepath.Join(first.Path, "shard-*"))
	if err != nil || len(shards) != 1 {
		t.Fatal(shards, err)
	}
	if err := os.Truncate(shards[0], 100); err != nil {
		t.Fatal(err)
	}
	if _, err := d.FindFolder(t.Context(), filepath.Base(first.Path)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("cut short: error %v", err)
	}
}
