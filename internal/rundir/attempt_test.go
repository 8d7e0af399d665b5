package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestClaimAttemptIsExclusive(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	const claimers, each = 8, 10
	var mu sync.Mutex
	seen := map[int]bool{}
	var wg sync.WaitGroup
	for range claimers {
		wg.Go(func() {
			// Another process has a Dir of its own.
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

func TestClaimAttemptWhereItCannot(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	attempts := filepath.Join(d.Path(), "attempts")
	must(t, os.Remove(attempts))
	if _, err := d.ClaimAttempt(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without attempts/: %v", err)
	}
	if _, err := d.NewestAttempt(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without attempts/: %v", err)
	}
	// A file that has an attempt's name is stepped over, not stumbled on.
	must(t, os.Mkdir(attempts, 0o700))
	must(t, os.WriteFile(filepath.Join(attempts, "1"), nil, 0o600))
	if n, err := d.ClaimAttempt(); n != 2 || err != nil {
		t.Errorf("claimed %d, %v; want 2", n, err)
	}
}

func TestFence(t *testing.T) {
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

func TestLogPath(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	logs := filepath.Join(d.Path(), "attempts", "2", "logs")
	for _, tc := range []struct {
		host   string
		stream string
		want   string
	}{
		{"n1", "out", "n1.3.out"},
		{"gpu-01.cluster.local", "err", "gpu-01.cluster.local.3.err"},
		{"../../etc", "out", "______etc.3.out"},
		{"", "out", "_.3.out"},
		{".hidden", "out", "_.hidden.3.out"},
		{"a b\n", "out", "a_b_.3.out"},
		{"n1", "../out", "n1.3.___out"},
	} {
		if got := d.LogPath(2, tc.host, 3, tc.stream); got != filepath.Join(logs, tc.want) {
			t.Errorf("LogPath(%q, %q) = %s, want %s", tc.host, tc.stream, filepath.Base(got), tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		path := d.LogPath(2, rapid.String().Draw(t, "host"), 3, "out")
		if filepath.Dir(path) != logs || strings.Contains(path, "..") || len(filepath.Base(path)) > 255 {
			t.Fatalf("path is %q", path)
		}
	})
}
