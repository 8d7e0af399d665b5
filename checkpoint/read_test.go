package checkpoint

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/internal/testkit/vfstest"
)

// TestReadGivesAnyPartOfATensor reads random parts of tensors that were written by several ranks.
func TestReadGivesAnyPartOfATensor(t *testing.T) {
	t.Parallel()
	s := testState(1, 0)
	large := make([]byte, 3*chunk.MaxBytes+40)
	fillNoise(large[:2*chunk.MaxBytes], 3)
	s.Tensors = append(s.Tensors, Tensor{Name: "large", DType: "float32", Shape: []int{len(large) / 4}, Data: large})
	d := openDir(t, Options{FS: vfstest.New(t), Attempt: 1, Workers: 3})
	c, err := split(t, d, s, 3, nil, Commit{})
	must(t, err)
	defer c.Close()
	rapid.Check(t, func(r *rapid.T) {
		var targets []Target
		var want [][]byte
		for range rapid.IntRange(0, 6).Draw(r, "targets") {
			tensor := rapid.SampledFrom(s.Tensors).Draw(r, "tensor")
			from := rapid.IntRange(0, len(tensor.Data)).Draw(r, "from")
			to := rapid.IntRange(from, len(tensor.Data)).Draw(r, "to")
			targets = append(targets, Target{Name: tensor.Name, Start: int64(from), Data: make([]byte, to-from)})
			want = append(want, tensor.Data[from:to])
		}
		if err := c.Read(context.Background(), targets); err != nil {
			r.Fatal(err)
		}
		for i, target := range targets {
			if !bytes.Equal(target.Data, want[i]) {
				r.Fatalf("%d bytes from %d of %s differ", len(target.Data), target.Start, target.Name)
			}
		}
	})
	for name, bad := range map[string]Target{
		"no such tensor": {Name: "x", Data: make([]byte, 1)},
		"negative":       {Name: "large", Start: -1, Data: make([]byte, 1)},
		"too long":       {Name: "scalar", Start: 1, Data: make([]byte, 8)},
	} {
		if err := c.Read(t.Context(), []Target{bad}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Reading a few bytes of a tensor reads one chunk of it, and finding a checkpoint reads no data.
func TestReadTakesOnlyWhatItNeeds(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	data := make([]byte, 40*chunk.MaxBytes)
	fillNoise(data, 4)
	s := &State{Step: 1, World: 1, Tensors: []Tensor{{Name: "w", DType: "uint8", Shape: []int{len(data)}, Data: data}}}
	save(t, openDir(t, Options{FS: m, Codec: "none"}), s)
	in := vfstest.NewInjector(m, nil)
	count := func() (sum int) {
		for _, op := range in.Log() {
			if op.Kind == "read" {
				sum += op.Size
			}
		}
		return sum
	}
	c, err := openDir(t, Options{FS: in}).FindLatest(t.Context())
	must(t, err)
	defer c.Close()
	found := count()
	if found > 8<<10 {
		t.Errorf("finding it read %d bytes", found)
	}
	must(t, c.Read(t.Context(), []Target{{Name: "w", Start: 7*chunk.MaxBytes + 5, Data: make([]byte, 100)}}))
	if n := count() - found; n > chunk.MaxBytes {
		t.Errorf("100 bytes cost %d", n)
	}
}

func TestManyGoroutinesReadOneCheckpoint(t *testing.T) {
	t.Parallel()
	s := testState(1, 0)
	d := openDir(t, Options{FS: vfstest.New(t), Attempt: 1})
	for _, shards := range []int{3, maxOpen + 1} {
		c, err := split(t, d, s, shards, nil, Commit{})
		must(t, err)
		var readers sync.WaitGroup
		for i := range uint64(4) {
			readers.Go(func() {
				rng := rand.New(rand.NewPCG(i, 0))
				for range 20 {
					tensor := s.Tensors[rng.IntN(2)]
					got := make([]byte, len(tensor.Data))
					if err := c.Read(context.Background(), []Target{{Name: tensor.Name, Data: got}}); err != nil ||
						!bytes.Equal(got, tensor.Data) {
						t.Errorf("%s: %v", tensor.Name, err)
					}
				}
			})
		}
		readers.Wait()
		must(t, c.Close())
	}
}
