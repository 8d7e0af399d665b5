package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/vfs"
)

const testPath = "/run/checkpoints"

// These are lengths in a shard file, as docs/format.md gives them.
const (
	headerBytes  = 64
	entryBytes   = 16
	trailerBytes = 32
)

// openDir opens testPath with a clock and random numbers that are the same in every run.
func openDir(t testing.TB, o Options) *Dir {
	t.Helper()
	d, err := Open(testPath, o)
	must(t, err)
	fix(d)
	return d
}

func fix(d *Dir) {
	var n uint32
	d.nonce = func() uint32 { n++; return n }
	d.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	d.sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	d.program = "ddpbatch test"
}

// CountWaits makes d add the times that it would wait for others to sum instead of waiting. It is for the hard tests, which are outside the
// package.
func (d *Dir) CountWaits(sum *time.Duration) {
	d.sleep = func(ctx context.Context, wait time.Duration) error { *sum += wait; return ctx.Err() }
}

// testState returns a small state that differs for every step and variant. It has two tensors with data, an empty one and a scalar.
func testState(step int64, variant int) *State {
	weights := make([]float32, 300)
	for i := range weights {
		weights[i] = float32(step)*1000 + float32(i) + float32(variant)/4
	}
	return &State{
		Step: step, World: 4,
		Tensors: []Tensor{
			Float32Tensor("layer.weight", []int{30, 10}, weights),
			{Name: "zeros", DType: "uint8", Shape: []int{2000}, Data: make([]byte, 2000)},
			{Name: "empty", DType: "int64", Shape: []int{0, 3}, Data: []byte{}},
			{Name: "scalar", DType: "int64", Shape: []int{}, Data: []byte{byte(step), byte(variant), 0, 0, 0, 0, 0, 0}},
		},
		Values: map[string]json.RawMessage{"sampler.epoch": json.RawMessage(fmt.Sprint(step)), "lr": json.RawMessage("0.1")},
	}
}

func save(t testing.TB, d *Dir, s *State) Info {
	t.Helper()
	info, err := d.Save(context.Background(), s)
	must(t, err)
	return info
}

func wantState(t testing.TB, got, want *State) {
	t.Helper()
	if err := sameState(got, want); err != nil {
		t.Fatalf("step %d: %v", want.Step, err)
	}
}

func sameState(got, want *State) error {
	if got.Step != want.Step || got.World != want.World || len(got.Tensors) != len(want.Tensors) || len(got.Values) != len(want.Values) {
		return fmt.Errorf("step %d, world %d, %d tensors, %d values; want %d, %d, %d, %d",
			got.Step, got.World, len(got.Tensors), len(got.Values), want.Step, want.World, len(want.Tensors), len(want.Values))
	}
	for i, w := range want.Tensors {
		g := got.Tensors[i]
		if g.Name != w.Name || g.DType != w.DType || !slices.Equal(g.Shape, w.Shape) || !bytes.Equal(g.Data, w.Data) {
			return fmt.Errorf("tensor %d is %q %s %v, %d bytes; want %q %s %v, %d bytes, the same ones",
				i, g.Name, g.DType, g.Shape, len(g.Data), w.Name, w.DType, w.Shape, len(w.Data))
		}
	}
	for key, w := range want.Values {
		var compact bytes.Buffer
		if err := json.Compact(&compact, w); err != nil {
			return err
		}
		if g := got.Values[key]; !bytes.Equal(g, compact.Bytes()) {
			return fmt.Errorf("value %q is %s, want %s", key, g, &compact)
		}
	}
	return nil
}

// tree lists every file below the checkpoints folder.
func tree(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	return walk(t, fsys, testPath)
}

// saved returns tree without the records of attempts and their gates.
func saved(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	return slices.DeleteFunc(tree(t, fsys), func(path string) bool {
		_, _, record := manifest.ParseRecordName(filepath.Base(path))
		_, _, gate := manifest.ParseGateName(filepath.Base(path))
		return record || gate
	})
}

func walk(t testing.TB, fsys vfs.FS, dir string) []string {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	must(t, err)
	var files []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			files = append(files, walk(t, fsys, path)...)
			files = append(files, path+"/")
		} else {
			files = append(files, path)
		}
	}
	return files
}

// stepPath returns the folder of the first save of a step.
func (d *Dir) stepPath(step int64) string { return filepath.Join(d.path, manifest.StepFolder(step)) }

// find returns the file of the folder whose name contains part. There must be exactly one.
func find(t testing.TB, fsys vfs.FS, dir, part string) string {
	t.Helper()
	var found []string
	for _, path := range walk(t, fsys, dir) {
		if strings.Contains(filepath.Base(path), part) {
			found = append(found, path)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d files with %q in %s: %v", len(found), part, dir, found)
	}
	return found[0]
}

// logTo returns a logger that writes to b.
func logTo(b io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, what string, err error, wants ...error) {
	t.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			t.Fatalf("%s: error %v, want one that is %v", what, err, want)
		}
	}
}

// VerifyStep reads and checks the whole checkpoint that Find returns for the step.
func VerifyStep(ctx context.Context, d *Dir, step int64) error {
	c, err := d.Find(ctx, step)
	if err != nil {
		return err
	}
	return errors.Join(c.Verify(ctx), c.Close())
}

// VerifyFolder reads and checks the whole checkpoint in a folder.
func VerifyFolder(ctx context.Context, d *Dir, folder string) error {
	c, err := d.FindFolder(ctx, folder)
	if err != nil {
		return err
	}
	return errors.Join(c.Verify(ctx), c.Close())
}
