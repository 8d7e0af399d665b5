package distributed_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// The hard tests are those that use the helpers below. Their author did not write the package, and used only its documentation and its
// exported API.

const hardPath = "/run/checkpoints"

// replicated are the arrays that all ranks share, with a shape that no world size divides evenly.
var replicated = []distributed.Array{
	{Name: "weight", DType: "float32", Shape: []int{37, 61}},
	{Name: "half", DType: "bfloat16", Shape: []int{1009}},
	{Name: "bias", DType: "float64", Shape: []int{3}},
	{Name: "empty", DType: "float32", Shape: []int{0, 5}},
	{Name: "step", DType: "int64", Shape: []int{}},
}

var elemBytes = map[string]int{"float32": 4, "bfloat16": 2, "float64": 8, "int64": 8}

func arrayBytes(a distributed.Array) int {
	n := elemBytes[a.DType]
	for _, dim := range a.Shape {
		n *= dim
	}
	return n
}

// arraysOf returns the live memory of a rank: the replicated arrays, and one array of its own.
func arraysOf(rank int) []distributed.Array {
	var arrays []distributed.Array
	for _, a := range replicated {
		a.Data, a.Replicated = make([]byte, arrayBytes(a)), true
		arrays = append(arrays, a)
	}
	return append(arrays, distributed.Array{
		Name: fmt.Sprintf("own.%d", rank), DType: "int64", Shape: []int{5 + rank}, Data: make([]byte, 8*(5+rank)),
	})
}

// content returns the content of an array at a step in one history (variant) of a run. Each step changes a seventh of the bytes of its
// history, and different histories differ in nearly all bytes.
func content(name string, n int, step int64, variant int) []byte {
	data := make([]byte, n)
	rng := rand.New(rand.NewPCG(uint64(crc32.ChecksumIEEE([]byte(name))), uint64(variant)))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for i := int(step) % 7; i < n; i += 7 {
		data[i] += byte(step)
	}
	if name == "step" {
		binary.LittleEndian.PutUint64(data, uint64(step))
	}
	return data
}

func fill(arrays []distributed.Array, step int64, variant int) {
	for _, a := range arrays {
		copy(a.Data, content(a.Name, len(a.Data), step, variant))
	}
}

func meta(step int64, variant int) distributed.Meta {
	return distributed.Meta{
		Step:    step,
		Values:  map[string]json.RawMessage{"variant": json.RawMessage(fmt.Sprint(variant))},
		Metrics: map[string]float64{"loss": 1 / float64(step+1)},
	}
}

// check reads a whole checkpoint and compares it with the content at its step in its history. It returns the history.
func check(ctx context.Context, c *checkpoint.Checkpoint) (variant int, err error) {
	if err := json.Unmarshal(c.Values()["variant"], &variant); err != nil {
		return 0, err
	}
	seen := 0
	for _, tensor := range c.Tensors() {
		data := make([]byte, tensor.Bytes)
		if err := c.Read(ctx, []checkpoint.Target{{Name: tensor.Name, Data: data}}); err != nil {
			return variant, err
		}
		if !bytes.Equal(data, content(tensor.Name, len(data), c.Step(), variant)) {
			return variant, fmt.Errorf("step %d, history %d: tensor %q is not what was saved", c.Step(), variant, tensor.Name)
		}
		seen++
	}
	if want := len(replicated) + c.World(); seen != want {
		return variant, fmt.Errorf("step %d has %d tensors, want %d", c.Step(), seen, want)
	}
	return variant, nil
}

// checkOwn reads and compares what one rank of a world needs: all replicated arrays, and its own array.
func checkOwn(ctx context.Context, c *checkpoint.Checkpoint, rank int) error {
	arrays := arraysOf(rank)
	var targets []checkpoint.Target
	for _, a := range arrays {
		if a.Replicated || rank < c.World() {
			half := len(a.Data) / 16 * 8 // read in two parts, the second part first
			targets = append(targets, checkpoint.Target{Name: a.Name, Start: int64(half), Data: a.Data[half:]},
				checkpoint.Target{Name: a.Name, Data: a.Data[:half]})
		}
	}
	if err := c.Read(ctx, targets); err != nil {
		return err
	}
	var variant int
	if err := json.Unmarshal(c.Values()["variant"], &variant); err != nil {
		return err
	}
	for _, a := range arrays {
		if (a.Replicated || rank < c.World()) && !bytes.Equal(a.Data, content(a.Name, len(a.Data), c.Step(), variant)) {
			return fmt.Errorf("rank %d: array %q of step %d is not what was saved", rank, a.Name, c.Step())
		}
	}
	return nil
}

// same returns a function that gives every rank the same file system.
func same(fsys vfs.FS) func(int) vfs.FS { return func(int) vfs.FS { return fsys } }

func need(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newestOf verifies all of the newest checkpoint and returns its step and history. For an empty directory the step is 0.
func newestOf(ctx context.Context, fsys vfs.FS, path string) (step int64, variant int, err error) {
	d, err := checkpoint.Open(path, checkpoint.Options{FS: fsys, Run: "run"})
	if err != nil {
		return 0, 0, err
	}
	c, err := d.FindLatest(ctx)
	if errors.Is(err, checkpoint.ErrNone) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	variant, err = check(ctx, c)
	return c.Step(), variant, errors.Join(err, c.Close())
}

// wholeDisk verifies every committed checkpoint and returns their steps. It wants every broken checkpoint to be in a folder named .broken.
func wholeDisk(ctx context.Context, fsys vfs.FS, path string) ([]int64, error) {
	d, err := checkpoint.Open(path, checkpoint.Options{FS: fsys, Run: "run"})
	if err != nil {
		return nil, err
	}
	list, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	var steps []int64
	for _, info := range list {
		switch info.State {
		case checkpoint.StateBroken, checkpoint.StateNewer:
			if strings.Contains(info.Path, ".broken") {
				continue
			}
			return nil, fmt.Errorf("step %d (%s) is %s", info.Step, info.Path, info.State)
		case checkpoint.StateCommitted:
			steps = append(steps, info.Step)
		}
	}
	for _, step := range slices.Compact(slices.Clone(steps)) {
		c, err := d.Find(ctx, step)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(c.Verify(ctx), c.Close()); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// filesBelow lists all files and folders below a folder, for the message of a failure.
func filesBelow(fsys vfs.FS, dir string) string {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range entries {
		path := dir + "/" + e.Name()
		b.WriteString(path + "\n")
		if e.IsDir() {
			b.WriteString(filesBelow(fsys, path))
		}
	}
	return b.String()
}

// job is one attempt of a run.
type job struct {
	world   int
	attempt int
	keep    checkpoint.Policy
	fence   func() error
	saver   distributed.Options
	fs      func(rank int) vfs.FS // each rank's view of the disk
	path    string                // "" means hardPath
}

// rank is one rank of a job.
type rank struct {
	*distributed.Saver
	number int
	arrays []distributed.Array
}

// save fills the arrays and saves them.
func (r *rank) save(ctx context.Context, step int64, variant int) error {
	fill(r.arrays, step, variant)
	err := r.Save(ctx, meta(step, variant))
	fill(r.arrays, step+1, 77) // the training continues, which the save must not see
	return err
}

// resume checks the checkpoint that the group resumes from and returns its step, or 0 if there is none. Rank 0 reads the whole checkpoint,
// so that damage counts anywhere, even in parts that no rank of a smaller world needs.
func (r *rank) resume(ctx context.Context) (int64, error) {
	c, err := r.Resume(ctx, func(c *checkpoint.Checkpoint) error {
		if r.number > 0 {
			return checkOwn(ctx, c, r.number)
		}
		_, err := check(ctx, c)
		return err
	})
	if errors.Is(err, checkpoint.ErrNone) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return c.Step(), c.Close()
}

// run runs a job on all its ranks and joins their errors. A rank that ends with an error dies, and the collectives of the other ranks fail
// then.
func (j job) run(ctx context.Context, body func(r *rank) error) error {
	m := distributed.NewGoroutineGroup(j.world)
	errs := testkit.Each(j.world, func(number int) error {
		err := j.one(ctx, m.Member(number), body)
		if err != nil {
			m.Die()
			return fmt.Errorf("rank %d: %w", number, err)
		}
		return nil
	})
	return errors.Join(errs...)
}

func (j job) one(ctx context.Context, m distributed.Group, body func(r *rank) error) error {
	o := j.saver
	o.FS = j.fs(m.Rank())
	path := j.path
	if path == "" {
		path = hardPath
	}
	var dir *checkpoint.Dir
	if m.Rank() == 0 {
		var err error
		dir, err = checkpoint.Open(path, checkpoint.Options{FS: o.FS, Run: "run", Attempt: j.attempt, Keep: j.keep, Fence: j.fence})
		if err != nil {
			return err
		}
	}
	arrays := arraysOf(m.Rank())
	saver, err := distributed.New(ctx, m, dir, arrays, o)
	if err != nil {
		return fmt.Errorf("new: %w", err)
	}
	return errors.Join(body(&rank{Saver: saver, number: m.Rank(), arrays: arrays}), saver.Close())
}
