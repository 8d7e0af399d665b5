package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// TestReplacedFileIsReadAgain: only a file that was replaced while it was read is read again, and only a few times.
func TestReplacedFileIsReadAgain(t *testing.T) {
	stale := fmt.Errorf("read f: %w", &os.PathError{Op: "read", Path: "f", Err: syscall.ESTALE})
	for name, test := range map[string]struct {
		errs  []error // one for each try; the last one repeats
		tries int
	}{
		"at once":     {[]error{nil}, 1},
		"replaced":    {[]error{stale, stale, nil}, 3},
		"gone":        {[]error{stale, os.ErrNotExist}, 2},
		"a bad disk":  {[]error{syscall.EIO}, 1},
		"always gone": {[]error{stale}, staleTries},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				want := test.errs[min(test.tries, len(test.errs))-1]
				got, err := retryStale(func() (int, error) {
					tries++
					return tries, test.errs[min(tries, len(test.errs))-1]
				})
				if tries != test.tries || got != test.tries || err != want {
					t.Errorf("after %d tries: %d, %v; want %d tries and %v", tries, got, err, test.tries, want)
				}
			})
		})
	}
}

func TestWritesLeaveNoTemporaryFile(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	before := listing(t, d.Path())
	must(t, d.WriteScript("#!/bin/sh\n"))
	s := d.Spec()
	s.Nodes = 7
	must(t, d.WriteSpec(s))
	s.Schema = 2
	if err := d.WriteSpec(s); err == nil {
		t.Error("a spec of another schema was written")
	}
	want := append(before, "script.sh")
	slices.Sort(want)
	if got := listing(t, d.Path()); !slices.Equal(got, want) {
		t.Errorf("directory holds %v, want %v", got, want)
	}
	again, err := Open(d.Path())
	must(t, err)
	if again.Spec().Nodes != 7 || d.Spec().Nodes != 7 {
		t.Errorf("nodes are %d on disk and %d in memory, want 7", again.Spec().Nodes, d.Spec().Nodes)
	}
	// If the target cannot be replaced, the temporary file is removed.
	must(t, os.Mkdir(filepath.Join(d.Path(), "jobid"), 0o700))
	if err := d.SetJobID("1"); err == nil {
		t.Error("a job id was written over a directory")
	}
	for _, name := range listing(t, d.Path()) {
		if strings.HasPrefix(name, ".tmp") {
			t.Errorf("%s was left behind", name)
		}
	}
}
