package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ddpbatch/checkpoint/distributed"
	"ddpbatch/mpi"
)

// group is the code that docs/go-trainer.md shows for checkpoint/distributed.
type group struct{ *mpi.Comm } // of comm.Dup

func (g group) Gather(ctx context.Context, payload []byte) ([][]byte, error) {
	return mpi.GatherBytes(ctx, g.Comm, payload, 0)
}

func (g group) Broadcast(ctx context.Context, payload []byte) ([]byte, error) {
	return mpi.BroadcastBytes(ctx, g.Comm, payload, 0)
}

var _ distributed.Group = group{}

// docs/go-trainer.md shows code that is in this folder.
func TestDocShowsThisCode(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "go-trainer.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*")
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

// withoutIndent returns text with the white space at the beginning of each line removed.
func withoutIndent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, " \t"))
	}
	return b.String()
}
