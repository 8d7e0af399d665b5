package rundir

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

func TestClaimAttemptIsExclusive(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	const claimers, each = 8, 10
	var mu sync.Mutex
	seen := map[int]bool{}
	var wg sync.WaitGroup
	for range claimers {
		wg.Go(func() {
			// Another process has its own Dir.
			own, err := Open(d.Path())
			if err != nil {
				t.Error(err)
				return
			}
			for range each {
				n, err := own.ClaimAttempt()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[n] {
					t.Errorf("attempt %d was claimed twice", n)
				}
				seen[n] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for n := 1; n <= claimers*each; n++ {
		if !seen[n] {
			t.Errorf("attempt %d is missing", n)
		}
	}
}

func TestNewestAttemptIgnoresForeignNames(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	attempts := filepath.Join(d.Path(), "attempts")
	for _, name := range []string{"0", "-3", "+4", "05", "7x", "1e3", ".9", "9999999999", "eight", "٣"} {
		must(t, os.Mkdir(filepath.Join(attempts, name), 0o700))
	}
	if n, err := d.NewestAttempt(); n != 0 || err != nil {
		t.Errorf("newest is %d, %v; want none", n, err)
	}
	must(t, os.Mkdir(filepath.Join(attempts, "12"), 0o700))
	if n, err := d.ClaimAttempt(); n != 13 || err != nil {
		t.Errorf("claimed %d, %v; want 13", n, err)
	}
	must(t, os.Mkdir(filepath.Join(attempts, "999999999"), 0o700))
	if n, err := d.ClaimAttempt(); err == nil {
		t.Errorf("claimed %d after the last there can be", n)
	}
}

func TestClaimAttemptNeedsItsFolder(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	attempts := filepath.Join(d.Path(), "attempts")
	must(t, os.Remove(attempts))
	if _, err := d.ClaimAttempt(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without attempts/: %v", err)
	}
	if _, err := d.NewestAttempt(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without attempts/: %v", err)
	}
	// A file that has the name of an attempt is skipped, and is not an error.
	must(t, os.Mkdir(attempts, 0o700))
	must(t, os.WriteFile(filepath.Join(attempts, "1"), nil, 0o600))
	if n, err := d.ClaimAttempt(); n != 2 || err != nil {
		t.Errorf("claimed %d, %v; want 2", n, err)
	}
}

func TestFenceRefusesSupersededAttempts(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	for range 2 {
		_, err := d.ClaimAttempt()
		must(t, err)
	}
	if err := d.Fence(1); !errors.Is(err, ErrSuperseded) {
		t.Errorf("attempt 1 beside attempt 2: %v", err)
	}
	if err := d.Fence(2); err != nil {
		t.Errorf("the newest attempt: %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(d.Path(), "attempts")))
	if err := d.Fence(2); err == nil || errors.Is(err, ErrSuperseded) {
		t.Errorf("attempts cannot be read: %v", err)
	}
}

func TestClaimAfterTakesTheNextAttempt(t *testing.T) {
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

// If a job and its successor claim the next attempt, exactly one of them gets it, and the other gets an error.
func TestClaimAfterGivesTheAttemptToOneJob(t *testing.T) {
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

// TestClaimHoldsThoughItsAnswerIsLost makes the file server do what it is asked and lose its answer, at each step of a claim. The request
// that is sent again gets the answer that the name is taken, or that the file to rename is gone (RFC 1813, 4.9). The claim still holds.
func TestClaimHoldsThoughItsAnswerIsLost(t *testing.T) {
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
					lost := vfstest.NewInjector(vfs.OS{}, func(_ int, op vfstest.Op) vfstest.Fault {
						if op.Kind == kind {
							return vfstest.Fault{AfterErr: answer}
						}
						return vfstest.Fault{}
					})
					d.files = lost
					if n, err := test.claim(d); n != 2 || err != nil {
						t.Errorf("claimed %d, %v; want 2", n, err)
					}
					if !slices.ContainsFunc(lost.Log(), func(op vfstest.Op) bool { return op.Kind == kind }) {
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

// TestClaimOfAnotherStaysTheirs: a claim that another process has made stays that process's claim. A claim that cannot be read is not taken
// for one.
func TestClaimOfAnotherStaysTheirs(t *testing.T) {
	t.Parallel()
	d := create1(t, filepath.Join(t.TempDir(), "runs"), "test")
	_, err := d.ClaimAttempt()
	must(t, err)
	other, err := Open(d.Path())
	must(t, err)
	// another process claims between this one's search for newer attempts and its claim
	faster := func(answer error) vfs.FS {
		return vfstest.NewInjector(vfs.OS{}, func(_ int, op vfstest.Op) vfstest.Fault {
			switch {
			case op.Kind == "rename":
				_, err := other.ClaimAfter(1)
				if err != nil && !errors.Is(err, ErrSuperseded) {
					t.Error(err)
				}
			case op.Kind == "stat":
				return vfstest.Fault{Err: answer}
			}
			return vfstest.Fault{}
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

func TestReachIsReadBack(t *testing.T) {
	d := create1(t, t.TempDir(), "r")
	n, err := d.ClaimAttempt()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reach(n, 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before it was written: %v", err)
	}
	if err := d.RemoveReach(n, 3); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"first", "second"} {
		if err := d.WriteReach(n, 3, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Reach(n, 3); err != nil || string(got) != text {
			t.Errorf("read %q, %v", got, err)
		}
	}
	path := filepath.Join(d.Path(), "attempts", "1", "reach", "3.json")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), maxReach+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reach(n, 3); err == nil {
		t.Error("a file of any length is read")
	}
	if err := d.RemoveReach(n, 3); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if err := d.WriteReach(n+1, 3, nil); err == nil {
		t.Error("an attempt was made that nobody claimed")
	}
}
