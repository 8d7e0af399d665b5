package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// block returns the first block of code of a language in docs/pytorch.md.
func block(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "pytorch.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begins := strings.Cut(string(page), "\n```"+language+"\n")
	text, _, ends := strings.Cut(rest, "\n```\n")
	if !begins || !ends {
		t.Fatalf("docs/pytorch.md has no block of %s", language)
	}
	return text + "\n"
}

// TestTorchPageScript runs the job and the script of docs/pytorch.md. Its ranks receive a warning, save, are requeued, and complete.
func TestTorchPageScript(t *testing.T) {
	t.Parallel()
	p := newLongPyTorch(t)
	for name, text := range map[string]string{"job.toml": block(t, "toml"), "train.py": block(t, "python")} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := p.launch("ddpbatch", "simulate", "job.toml", "--nodes", "2", "--nproc-per-node", "1", "--fault", "warn@step=500",
		"--set", fmt.Sprintf("launch.command=[%q, %q]", p.python, "train.py")).end(torchLimit)
	p.gone()
	if out.code != 0 || !strings.Contains(out.stderr, "the workers saved") {
		t.Errorf("simulate: %v", out)
	}
	shown := p.launch("ddpbatch", "status").end(torchLimit)
	if row := strings.Split(strings.TrimSuffix(shown.stdout, "\n"), "\t"); len(row) < 7 || row[3] != "2" || row[6] != "2000/2000" {
		t.Errorf("status: %v", shown)
	}
	// a number of steps that is not a multiple of ten
	script := strings.Replace(block(t, "python"), "step, steps = 0, 2000", "step, steps = 0, 124", 1)
	if err := os.WriteFile(filepath.Join(p.dir, "train.py"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	out = p.launch("ddpbatch", "simulate", "job.toml", "--nodes", "1", "--nproc-per-node", "1", "--set", "run_dir=uneven",
		"--set", fmt.Sprintf("launch.command=[%q, %q]", p.python, "train.py")).end(torchLimit)
	if shown = p.launch("ddpbatch", "status", "--runs", "uneven").end(torchLimit); !strings.Contains(shown.stdout, "\t124/124\t") {
		t.Errorf("simulate: %v\nstatus: %v", out, shown)
	}
}
