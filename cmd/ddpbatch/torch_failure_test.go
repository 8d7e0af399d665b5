package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestTorchFailureBlamesTheRankThatBegan makes one rank of real DDP fail, in several ways. Its peers then fail too, since they have lost
// it. The exit code and the report are those of the rank that failed first.
func TestTorchFailureBlamesTheRankThatBegan(t *testing.T) {
	t.Parallel()
	const exception = "ValueError: the loss of step 2 is not a number"
	for _, row := range []struct {
		how   string
		files string // "": in a folder that --log-dir names
		ranks int
		exit  int
		says  []string // in this order
	}{
		{"raise", "", 3, 1, []string{"exited with code 1", exception, `in end`, "raise ValueError", exception, "2 ranks followed: 0, 2"}},
		{"record", "", 2, 1, []string{"exited with code 1", exception, `in end`, "raise ValueError", exception, "1 rank followed: 0"}},
		// the exception is not on standard error, only in the error file
		{"quiet", "", 2, 1, []string{"exited with code 1", exception, "in end", "raise ValueError", "1 rank followed: 0"}},
		{"quiet", "without --log-dir", 2, 1, []string{"exited with code 1", exception, "in end", "raise ValueError", "1 rank followed: 0"}},
		{"exit", "", 2, 7, []string{"exited with code 7", "1 rank followed: 0"}},
		{"segv", "", 2, 139, []string{"was killed by SIGSEGV", "1 rank followed: 0"}},
		{"kill", "", 2, 137, []string{"was killed by SIGKILL", "1 rank followed: 0"}},
	} {
		t.Run(strings.TrimSpace(row.how+" "+row.files), func(t *testing.T) {
			p := newLongPyTorch(t)
			flags := []string{"--nproc-per-node", fmt.Sprint(row.ranks)}
			if row.files == "" {
				flags = append(flags, "--log-dir", filepath.Join(p.dir, "logs"))
			}
			out := p.run(append(flags, p.script("fail.py"), row.how)...)
			if out.code != row.exit {
				t.Errorf("exit code %d, want %d", out.code, row.exit)
			}
			// the output of the ranks comes before the report
			_, report, found := strings.Cut(out.stderr, "ddpbatch: rank 1 on ")
			for rest := report; found && len(row.says) > 0; row.says = row.says[1:] {
				_, rest, found = strings.Cut(rest, row.says[0])
			}
			if !found || strings.Contains(report, "by peer") || !strings.Contains(report, "the first to fail") {
				t.Errorf("the report lacks %q, or names a rank that followed: %s", row.says, out.stderr)
			}
		})
	}
}
