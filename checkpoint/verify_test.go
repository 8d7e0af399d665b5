package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
)

// TestSampleFindsItsShareOfDamage damages each chunk of 20 checkpoints in turn. Each sample finds the share of chunks that was asked for,
// and a second sample of a checkpoint finds the same ones. Different checkpoints have different samples, which together cover every chunk
// number.
func TestSampleFindsItsShareOfDamage(t *testing.T) {
	t.Parallel()
	const chunks, checkpoints = 50, 20
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Codec: "none"})
	found := make([]int, chunks)
	for step := range int64(checkpoints) {
		s := &State{Step: step, World: 1}
		for i := range chunks {
			s.Tensors = append(s.Tensors, Float32Tensor(fmt.Sprint("t", i), []int{1}, []float32{float32(i)}))
		}
		path := find(t, m, save(t, d, s).Path, "shard-")
		good := vfstest.Read(t, m, path)
		sample := func() (list [chunks]bool) {
			for n := range chunks {
				list[n] = !sampled(t, d, m, step, 20, path, flippedAt(good, headerBytes+4*n))
			}
			vfstest.Put(t, m, path, good)
			return list
		}
		list := sample()
		if step == 0 && sample() != list {
			t.Fatal("a second sample is of other chunks")
		}
		hits := 0
		for n, hit := range list {
			if hit {
				found[n]++
				hits++
			}
		}
		if hits != chunks/5 {
			t.Fatalf("step %d: %d chunks are in the sample, want %d", step, hits, chunks/5)
		}
	}
	for n, times := range found {
		if times == 0 || times > checkpoints/2 {
			t.Errorf("chunk %d was in %d samples of %d, each a fifth", n, times, checkpoints)
		}
	}
}

// sampled writes data to the shard and reports whether a sample of the checkpoint passes.
func sampled(t *testing.T, d *Dir, m *vfstest.Mem, step int64, percent float64, path string, data []byte) bool {
	t.Helper()
	vfstest.Put(t, m, path, data)
	c, err := d.Find(t.Context(), step)
	must(t, err)
	defer c.Close()
	n, err := c.VerifySample(t.Context(), percent)
	if err != nil && !errors.Is(err, ErrCorrupt) || err == nil && n != c.Chunks()/5 {
		t.Fatalf("%d of %d chunks, %v", n, c.Chunks(), err)
	}
	return err == nil
}

func flippedAt(data []byte, at int) []byte {
	bad := append([]byte{}, data...)
	bad[at] ^= 1
	return bad
}

// A sample reads at least one chunk if the checkpoint has any. VerifySample refuses shares that are not above 0 and at most 100 percent.
func TestSampleReadsAtLeastOneChunk(t *testing.T) {
	t.Parallel()
	d := openDir(t, Options{FS: vfstest.New(t)})
	save(t, d, testState(1, 0)) // three tensors with data
	save(t, d, &State{Step: 2, World: 1})
	for _, test := range []struct {
		step    int64
		percent float64
		want    int // -1 if VerifySample refuses the share
	}{{1, 0.001, 1}, {1, 34, 2}, {1, 100, 3}, {2, 5, 0}, {1, 0, -1}, {1, -1, -1}, {1, 100.1, -1}} {
		c, err := d.Find(t.Context(), test.step)
		must(t, err)
		n, err := c.VerifySample(t.Context(), test.percent)
		if (err != nil) != (test.want < 0) || err == nil && n != test.want {
			t.Errorf("%v %% of step %d: %d chunks, %v; want %d", test.percent, test.step, n, err, test.want)
		}
		must(t, c.Close())
	}
}

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
			heads := [3]int64{0: 16 * 4 * 4}[i] // 4 bytes for each of the 4 planes of the 16 chunks
			if sum+heads != s.Stored || s.Delta != 0 {
				t.Errorf("tensor %d: %d bytes in all, %d by codec, %d of differences", i, s.Stored, sum, s.Delta)
			}
		}
		if zeros := list[0].Stored; zeros <= 0 || zeros > 1<<16 || list[1].Stored != 0 || list[0].Codecs["constant"] != 16*4 ||
			list[2].Codecs["raw"] != 4 {
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
