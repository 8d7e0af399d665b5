package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
)

// A script asks for cores only where the words that sbatch gets beside it do not: Slurm 25.11 refuses both at once.
func TestCoresAskedBesideTheScript(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	text := "name = \"x\"\n[launch]\nnproc_per_node = 4\ncommand = [\"true\"]\n"
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte(text), 0o600))
	var run string
	asks := func(want bool, args ...string) {
		t.Helper()
		code, out, errs := q.run(parent, args...)
		if code != 0 {
			t.Fatalf("%q: %d, %s%s", args, code, out, errs)
		}
		if run == "" && !strings.HasPrefix(out, "#!") { // submitted for the first time
			run = must(t, rundir.List, filepath.Join(parent, "runs"))[0].Path()
		}
		if run != "" {
			out = string(must(t, os.ReadFile, filepath.Join(run, "script.sh")))
			q.is(q.alive()[0], "CANCELLED")
		}
		if got := strings.Contains(out, "#SBATCH --cpus-per-task=4\n"); got != want {
			t.Errorf("%q: the script asks for cores: %v", args, got)
		}
	}
	asks(true, "submit", "job.toml", "--dry-run", "--", "--switches=1")
	asks(false, "submit", "job.toml", "--dry-run", "--", "--cpus-per-gpu=8")
	asks(false, "submit", "job.toml", "--", "--cpus-per-gpu=8")
	asks(true, "resume", run)
	asks(false, "resume", run, "--", "--tres-per-task=cpu:8")
}
