package runindex

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

func TestFolderFollowsXDG(t *testing.T) {
	for _, test := range []struct {
		name    string
		environ []string
		want    Index
	}{
		{"HOME", []string{"HOME=/home/ann"}, "/home/ann/.local/state/ddpbatch/runs"},
		{"both", []string{"HOME=/home/ann", "XDG_STATE_HOME=/state"}, "/state/ddpbatch/runs"},
		{"a relative one", []string{"HOME=/home/ann", "XDG_STATE_HOME=state"}, "/home/ann/.local/state/ddpbatch/runs"},
		{"a relative HOME", []string{"HOME=ann"}, ""},
		{"none", nil, ""},
	} {
		if got := Folder(jobenv.LookupIn(test.environ)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// names returns the paths of the runs in an index, in order.
func names(t *testing.T, x Index, now time.Time) (paths []string) {
	t.Helper()
	runs, err := x.Runs(now)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		paths = append(paths, run.Path())
	}
	slices.Sort(paths)
	return paths
}

// links returns the names in the index's folder.
func links(t *testing.T, x Index) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(string(x))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func add(t *testing.T, x Index, runs ...*rundir.Dir) {
	t.Helper()
	for _, run := range runs {
		if err := x.Add(run); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIndexLeadsToRunsUntilTheyAreGone(t *testing.T) {
	x := Index(filepath.Join(t.TempDir(), "state", "runs"))
	now := time.Now()
	if got := names(t, x, now); got != nil {
		t.Errorf("an index that is not there leads to %q", got)
	}
	a, b, c := fakeslurm.Run(t, ""), fakeslurm.Run(t, ""), fakeslurm.Run(t, "")
	add(t, x, a, b, c, a)
	want := []string{a.Path(), b.Path(), c.Path()}
	slices.Sort(want)
	if got := names(t, x, now); !slices.Equal(got, want) {
		t.Fatalf("the index leads to %q, want %q", got, want)
	}

	if err := os.RemoveAll(a.Path()); err != nil {
		t.Fatal(err)
	}
	away := filepath.Dir(b.Path())
	if err := os.Rename(away, away+"-unmounted"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(x), "note"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := names(t, x, now); !slices.Equal(got, []string{c.Path()}) {
		t.Errorf("the index leads to %q, want %q alone", got, c.Path())
	}
	left := []string{filepath.Base(b.Path()), filepath.Base(c.Path()), "note"}
	slices.Sort(left)
	if got := links(t, x); !slices.Equal(got, left) {
		t.Errorf("in the index is %q, want %q: a run that was removed is dropped, one whose file system may be away is not", got, left)
	}
	if names(t, x, now.Add(kept+time.Hour)); slices.Contains(links(t, x), filepath.Base(b.Path())) {
		t.Error("a run that has been away for longer than a month is still there")
	}
}

// If a run was moved, or copied to another place and resumed there, the index leads to where it was resumed last.
func TestAddReplacesTheRunOfItsName(t *testing.T) {
	x := Index(t.TempDir())
	run := fakeslurm.Run(t, "")
	add(t, x, run)
	moved := filepath.Join(t.TempDir(), filepath.Base(run.Path()))
	if err := os.Rename(run.Path(), moved); err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Open(moved)
	if err != nil {
		t.Fatal(err)
	}
	add(t, x, run)
	if got := names(t, x, time.Now()); !slices.Equal(got, []string{moved}) {
		t.Errorf("the index leads to %q, want %q", got, moved)
	}
}

// If the folder of the index cannot be made, Add returns an error. An empty Index means that no index is wanted, and is not an error.
func TestAddFailsWithASentence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := fakeslurm.Run(t, "")
	if err := Index(filepath.Join(file, "runs")).Add(run); err == nil {
		t.Error("a folder was made below a file")
	}
	if err := Index("").Add(run); err != nil {
		t.Error(err)
	}
}
