package rehearse

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch"
)

// TestLinksAreComparedByTheirTarget: a link is compared by what it leads to. A link that leads nowhere is compared by its target, relative
// to its run.
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

// TestCommandsOwnCheckpointsAreCompared: if a command saves with package checkpoint, the contents of the last checkpoints are compared. The
// files themselves always differ.
func TestCommandsOwnCheckpointsAreCompared(t *testing.T) {
	job := &jobfile.Job{Launch: launch.Config{Command: []string{"./custom"}}}
	save := func(attempt int, values ...float32) Outcome {
		t.Helper()
		run := fakeslurm.Run(t, "")
		dir, err := checkpoint.Open(run.CheckpointsPath(), checkpoint.Options{Run: "custom", Attempt: attempt})
		if err != nil {
			t.Fatal(err)
		}
		for i := range values {
			w := checkpoint.Float32Tensor("w", []int{1}, values[i:i+1])
			state := &checkpoint.State{Step: int64(i), World: 1, Tensors: []checkpoint.Tensor{w}}
			if _, err := dir.Save(t.Context(), state); err != nil {
				t.Fatal(err)
			}
		}
		return Outcome{Run: run, Job: job}
	}
	r := &Rehearsal{}
	f, err := r.compare(t.Context(), save(1, 1, 2), save(2, 3, 2))
	if err != nil || f.compared != 1 || len(f.differ) > 0 {
		t.Errorf("%+v, %v; want the last checkpoints to be equal", f, err)
	}
	f, err = r.compare(t.Context(), save(1, 1, 2), save(2, 1, 3))
	want := []string{"tensor w (float32): 1 of 1 elements differ, by 1 at most"}
	if err != nil || !slices.Equal(f.differ, want) {
		t.Errorf("%+v, %v; want %q", f, err, want)
	}
}

// TestPipesAreNotSummed: a pipe without a writer, or a device, in the place of a file causes an error at once.
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
