package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/internal/vfs"
)

func TestClaimAfter(t *testing.T) {
	d := create1(t, t.TempDir(), "test")
	first, err := d.ClaimAttempt()
	must(t, err)
	second, err := d.ClaimAfter(first)
	if err != nil || second != first+1 {
		t.Fatalf("claimed %d, %v", second, err)
	}
	if info, err := os.Stat(d.LogsPath(second)); err != nil || !info.IsDir() {
		t.Errorf("it has no folder for logs: %v", err)
	}
	for range 2 {
		if n, err := d.ClaimAfter(first); !errors.Is(err, ErrSuperseded) {
			t.Errorf("the first attempt claimed %d, %v", n, err)
		}
	}
	if newest, err := d.NewestAttempt(); err != nil || newest != second {
		t.Errorf("the newest is %d, %v", newest, err)
	}
}

// Of a job and its successor, one has the next attempt, and the other knows.
func TestClaimAfterBesideAnotherJob(t *testing.T) {
	for range 50 {
		d := create1(t, t.TempDir(), "test")
		held, err := d.ClaimAttempt()
		must(t, err)
		var went atomic.Int32
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				switch _, err := d.ClaimAfter(held); {
				case err == nil:
					went.Add(1)
				case !errors.Is(err, ErrSuperseded):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if went.Load() != 1 {
			t.Fatalf("%d went on", went.Load())
		}
	}
}

// TestClaimWhoseAnswerIsLost has the file server do what it is asked and lose its answer, at each step of a claim: the request that is sent
// again is told that the name is taken, or that what is to be renamed is gone (RFC 1813, 4.9). The claim holds all the same.
func TestClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	claims := map[string]struct {
		folder string
		claim  func(d *Dir) (int, error)
	}{
		"ClaimAttempt": {attemptsName, (*Dir).ClaimAttempt},
		"ClaimAfter":   {attemptsName, func(d *Dir) (int, error) { return d.ClaimAfter(1) }},
		"Claim": {claimsName, func(d *Dir) (int, error) {
			c, err := d.Claim("here", "resume", noon)
			if err != nil {
				return 0, err
			}
			return c.n, c.Release()
		}},
	}
	for name, test := range claims {
		for _, answer := range []error{syscall.EEXIST, syscall.ENOTEMPTY, syscall.ENOENT} {
			for _, kind := range []string{"mkdir", "rename"} {
				if kind == "mkdir" && answer != syscall.EEXIST {
					continue
				}
				t.Run(name+"/"+kind+"/"+answer.Error(), func(t *testing.T) {
					t.Parallel()
					d := create1(t, filepath.Join(t.TempDir(), "runs"), "test")
					first, err := d.ClaimAttempt()
					if test.folder == claimsName {
						first, err = test.claim(d)
					}
					if must(t, err); first != 1 {
						t.Fatalf("the first is %d", first)
					}
					lost := vfs.NewInjector(vfs.OS{}, func(_ int, op vfs.Op) vfs.Fault {
						if op.Kind == kind {
							return vfs.Fault{AfterErr: answer}
						}
						return vfs.Fault{}
					})
					d.files = lost
					if n, err := test.claim(d); n != 2 || err != nil {
						t.Errorf("claimed %d, %v; want 2", n, err)
					}
					if !slices.ContainsFunc(lost.Log(), func(op vfs.Op) bool { return op.Kind == kind }) {
						t.Errorf("no answer was lost: %v", lost.Log())
					}
					if names := listing(t, filepath.Join(d.Path(), test.folder)); !slices.Equal(names, []string{"1", "2"}) {
						t.Errorf("%s are %q, want 1 and 2", test.folder, names)
					}
				})
			}
		}
	}
}

// TestClaimOfAnother holds that a claim which another has made stays theirs, and that one which cannot be looked at is not called theirs.
func TestClaimOfAnother(t *testing.T) {
	t.Parallel()
	d := create1(t, filepath.Join(t.TempDir(), "runs"), "test")
	_, err := d.ClaimAttempt()
	must(t, err)
	other, err := Open(d.Path())
	must(t, err)
	// between this one's look for newer attempts and its claim, another is faster
	faster := func(answer error) vfs.FS {
		return vfs.NewInjector(vfs.OS{}, func(_ int, op vfs.Op) vfs.Fault {
			switch {
			case op.Kind == "rename":
				_, err := other.ClaimAfter(1)
				if err != nil && !errors.Is(err, ErrSuperseded) {
					t.Error(err)
				}
			case op.Kind == "stat":
				return vfs.Fault{Err: answer}
			}
			return vfs.Fault{}
		})
	}
	d.files = faster(nil)
	if n, err := d.ClaimAfter(1); !errors.Is(err, ErrSuperseded) {
		t.Errorf("claimed %d, %v; want ErrSuperseded", n, err)
	}
	must(t, os.RemoveAll(filepath.Join(d.Path(), attemptsName, "2")))
	d.files = faster(syscall.EIO)
	if n, err := d.ClaimAfter(1); n != 0 || errors.Is(err, ErrSuperseded) || !errors.Is(err, syscall.EIO) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("claimed %d, %v; want what the file server said", n, err)
	}
}
