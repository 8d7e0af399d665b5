package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestNamesAreThoseThatFindTakes(t *testing.T) {
	parent := t.TempDir()
	older, newer := create1(t, parent, "mnist"), createAt(t, parent, "a-b", noon.Add(time.Hour))
	unsubmitted := createAt(t, parent, "mnist", noon.Add(2*time.Hour))
	must(t, older.SetJobID("99"))
	must(t, newer.SetJobID("123"))
	for _, index := range []int{0, 2, 11} {
		_, err := newer.Task(index)
		must(t, err)
	}
	must(t, os.Mkdir(filepath.Join(newer.Path(), "tasks", "x"), 0o700))
	// ignored: files, folders and links whose names ddpbatch does not make
	must(t, os.WriteFile(filepath.Join(parent, ".job-mnist-7"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(parent, ".job-mnist-8"), 0o700))
	for _, link := range []string{"nosuch\x1b]0;x\a-1", "-2", "a b-3", "$(x)-4", "5", "mnist-6x", "mnist-", "mnist-1+0", "mnist-1_2",
		"mnist-20261121-101500-12345678"} {
		must(t, os.Symlink(filepath.Base(older.Path()), filepath.Join(parent, ".job-"+link)))
	}
	for _, link := range []string{"mnist-9", ".link-mnist-7"} {
		must(t, os.Symlink(filepath.Base(older.Path()), filepath.Join(parent, link)))
	}
	dirs := []string{filepath.Base(unsubmitted.Path()), filepath.Base(newer.Path()), filepath.Base(older.Path())}
	for prefix, want := range map[string][]string{
		"":      append([]string{"123", "99"}, dirs...),
		"1":     {"123"},
		"mnist": {dirs[0], dirs[2]},
		"123_":  {"123_0", "123_2", "123_11"},
		"123_1": {"123_11"},
		"99_":   nil,
		"5":     nil,
		"x_":    nil,
		"\x1b":  nil,
	} {
		var got []string
		for _, n := range Names(parent, prefix) {
			got = append(got, n.Text)
			if _, err := Find(parent, n.Text); err != nil {
				t.Errorf("after %q %s is offered: %v", prefix, n.Text, err)
			}
			if n.Text == "123" && n.Job != "a-b" {
				t.Errorf("job 123 is called %q", n.Job)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %q: %q, want %q", prefix, got, want)
		}
	}
	if got := Names(filepath.Join(parent, "nowhere"), ""); got != nil {
		t.Errorf("in a folder that is not there: %v", got)
	}
}

func BenchmarkNames(b *testing.B) {
	parent := b.TempDir()
	for i := range 2000 {
		run := fmt.Sprintf("mnist-20261121-%06d-%08x", i, i)
		must(b, os.Mkdir(filepath.Join(parent, run), 0o700))
		must(b, os.Symlink(run, filepath.Join(parent, fmt.Sprintf(".job-mnist-%d", i+1))))
	}
	for b.Loop() {
		if got := len(Names(parent, "")); got != 4000 {
			b.Fatal(got)
		}
	}
}
