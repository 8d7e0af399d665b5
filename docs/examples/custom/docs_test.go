package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/mpi/transport"
	"ddpbatch/trainer/nn"
)

// group is the code that docs/go-trainer.md shows for checkpoint/distributed.
type group struct{ *mpi.Comm } // of comm.Dup

func (g group) Gather(ctx context.Context, payload []byte) ([][]byte, error) {
	return mpi.GatherBytes(ctx, g.Comm, payload, 0)
}

func (g group) Broadcast(ctx context.Context, payload []byte) ([]byte, error) {
	return mpi.BroadcastBytes(ctx, g.Comm, payload, 0)
}

// train3 is the code that docs/go-trainer.md shows for a Saver, in a training of 3 steps which sets every value to the step's number. It
// returns the step with which it began.
func train3(ctx context.Context, comm *mpi.Comm, path string, state []nn.Buffer) (first int64, err error) {
	own, err := comm.Dup(ctx)
	if err != nil {
		return 0, err
	}
	var step int64
	var dir *checkpoint.Dir
	if comm.Rank() == 0 { // on the other ranks dir stays nil
		if dir, err = checkpoint.Open(path, checkpoint.Options{Run: "custom", Attempt: max(1, attempt())}); err != nil {
			return 0, err
		}
	}
	arrays, targets := make([]distributed.Array, len(state)), make([]checkpoint.Target, len(state))
	for i, a := range state {
		arrays[i] = distributed.Float32(a.Name, a.Shape, a.Value) // not a copy: the memory that training changes
		arrays[i].Replicated = true                               // all ranks have the same values, and each writes a part of them
		targets[i] = checkpoint.Target{Name: a.Name, Data: arrays[i].Data}
	}
	saver, err := distributed.New(ctx, group{own}, dir, arrays, distributed.Options{Async: true})
	if err != nil {
		return 0, err
	}
	c, err := saver.Resume(ctx, func(c *checkpoint.Checkpoint) error { return c.Read(ctx, targets) })
	if err == nil {
		step = c.Step()
		err = c.Close()
	}
	if err != nil && !errors.Is(err, checkpoint.ErrNone) { // ErrNone: this is the first start
		return 0, err
	}
	for first = step; step < first+3; {
		step++
		for _, a := range state {
			for i := range a.Value {
				a.Value[i] = float32(step)
			}
		}
		if err := saver.Save(ctx, distributed.Meta{Step: step}); err != nil {
			return first, err
		}
	}
	if _, err := saver.Wait(ctx); err != nil {
		return first, err
	}
	return first, saver.Close()
}

// The second run goes on with the step and the values that the first one has saved last.
func TestShownSaverResumes(t *testing.T) {
	const ranks = 2
	folder := t.TempDir()
	for run := range 2 {
		comms, err := mpi.InitLocal(t.Context(), transport.NewNetwork(ranks), mpi.InitConfig{Config: mpi.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		for rank, err := range testkit.Each(ranks, func(rank int) error {
			defer comms[rank].Close()
			state := []nn.Buffer{{Name: "model.w", Shape: []int{2048}, Value: make([]float32, 2048)}}
			first, err := train3(t.Context(), comms[rank], folder, state)
			if want := int64(3 * run); first != want {
				t.Errorf("rank %d began with step %d, want %d", rank, first, want)
			}
			return err
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
		}
	}
	dir, err := checkpoint.Open(folder, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	state, _, err := dir.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, 2048)
	if err := state.Tensors[0].Float32s(values); err != nil || values[0] != 6 || values[2047] != 6 {
		t.Errorf("%v, the last checkpoint has %v and %v, want 6", err, values[0], values[2047])
	}
}

// docs/go-trainer.md shows code that is in this folder.
func TestDocShowsThisCode(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "go-trainer.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.*")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(withoutIndent(string(text)))
	}
	blocks := regexp.MustCompile("(?s)```(?:go|toml)\n(.*?)\n *```\n").FindAllStringSubmatch(string(doc), -1)
	if len(blocks) < 8 {
		t.Fatalf("found %d blocks of code, want at least 8", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(all.String(), withoutIndent(block[1]+"\n")) {
			t.Errorf("docs/go-trainer.md shows code that is in no file of this folder:\n%s", block[1])
		}
	}
}

// A module of the reader's own cannot have the tests that import internal packages. docs/go-trainer.md removes those, and no others, and
// builds the program that job.toml runs.
func TestDocMakesAModule(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "go-trainer.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	line := "\nrm"
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\n\t\"ddpbatch/internal/") {
			line += " " + path
		}
	}
	for _, want := range []string{line + "\n", "\nCGO_ENABLED=0 go build -o custom . && go test .\n"} {
		if !strings.Contains(string(doc), want) {
			t.Errorf("docs/go-trainer.md has no line %q", want)
		}
	}
}

// withoutIndent returns text with the white space at the beginning of each line removed.
func withoutIndent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, " \t"))
	}
	return b.String()
}
