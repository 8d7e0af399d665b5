package rehearse

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/internal/vfs"
)

// TestLinksAreComparedByTheirTarget: a link is compared by what it leads to, and one that leads nowhere by where it leads,
// seen from its run.
func TestLinksAreComparedByTheirTarget(t *testing.T) {
	a, b := fakeslurm.Run(t, ""), fakeslurm.Run(t, "")
	put := func(run *rundir.Dir, link, text string) {
		t.Helper()
		in := run.CheckpointsPath()
		for name, target := range map[string]string{
			"same": "gone", "other": link, "own": filepath.Join(in, "gone"), "loop": "loop", "leads": "file", "folder": ".",
		} {
			if err := os.Symlink(target, filepath.Join(in, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(in, "file"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(a, "gone1", "x")
	put(b, "gone2", "y")
	for name, patterns := range map[string][]string{"all": nil, "by a pattern": {"checkpoints/*"}} {
		f, err := (&Rehearsal{Patterns: patterns}).compareFiles(t.Context(), a, b)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"file checkpoints/file: the bytes differ", "file checkpoints/leads: the bytes differ",
			"file checkpoints/other: the bytes differ"}
		if f.compared != 6 || !slices.Equal(f.differ, want) {
			t.Errorf("%s: %d compared, %q; want 6 and %q", name, f.compared, f.differ, want)
		}
	}
}

// TestPipesAreNotSummed: a pipe without a writer, or a device, in the place of a file is an error at once.
func TestPipesAreNotSummed(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero"} {
		if _, err := sumOf(path); !errors.Is(err, vfs.ErrNotRegular) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
