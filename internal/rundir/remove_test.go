package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Remove removes a run together with its links. It removes neither the targets of links inside the run nor other runs and their links.
func TestRemove(t *testing.T) {
	parent := t.TempDir()
	run, other := create1(t, parent, "x"), create1(t, parent, "x")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(
		os.WriteFile(outside, []byte("x"), 0o600), os.Symlink(outside, filepath.Join(run.CheckpointsPath(), "link")),
		os.Symlink(filepath.Dir(outside), filepath.Join(run.CheckpointsPath(), "folder")), run.SetJobID("12"), other.SetJobID("13"),
		os.Symlink(outside, filepath.Join(parent, "mine")),
	); err != nil {
		t.Fatal(err)
	}
	if err := run.Remove(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		run.Path(): false, run.jobLink("12"): false, other.Path(): true, other.jobLink("13"): true, outside: true,
		filepath.Join(parent, "mine"): true,
	} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 3 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// What an interrupted removal has left is not a run, and the next removal finds it.
func TestLeftRemovals(t *testing.T) {
	parent := t.TempDir()
	run := create1(t, parent, "x")
	left := filepath.Join(parent, removedPrefix+filepath.Base(run.Path()))
	if err := errors.Join(os.Rename(run.Path(), left), os.Mkdir(filepath.Join(parent, removedPrefix+"mine"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if runs, err := List(parent); err != nil || len(runs) != 0 {
		t.Errorf("runs: %v, %v", runs, err)
	}
	paths, err := LeftRemovals(parent)
	if err != nil || len(paths) != 1 || paths[0] != left {
		t.Fatalf("left: %v, %v; want %s", paths, err, left)
	}
	if err := RemoveLeft(left); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}
