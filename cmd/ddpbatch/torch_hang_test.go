package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTorchHangNamesTheRank makes ranks of real PyTorch hang, in several ways. It checks which rank the verdict names, in which call the
// others wait, and the line of each. "{at x}" stands for the line of hang.py that ends with the comment "# at x", and "{fifo}" for its
// pipe.
func TestTorchHangNamesTheRank(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		how  string
		says string // of the verdict
	}{
		{"missing", "rank 1 on {host} did not come: it stands at {at missing} in joined, asleep, while rank 0 waits in all_reduce " +
			"({in all_reduce} in joined);"},
		{"order", "the ranks wait in different calls: rank 0 in all_reduce ({in all_reduce} in joined), rank 1 in broadcast " +
			"({in broadcast} in joined);"},
		{"shape", "the ranks wait in different calls: rank 0 in reduce ({in reduce} in joined), rank 1 in all_reduce " +
			"({in all_reduce} in joined);"},
		{"loader", "rank 1 on {host} did not come: it stands at {over loader} in joined, and waits for process {pid} at {at " +
			"loader} in __getitem__, " +
			"while rank 0 waits in all_reduce ({in loop} in joined);"},
		{"file", "rank 1 on {host} did not come: it stands at {at file} in unjoined, in openat of {fifo}, while rank 0 waits in " +
			"init_process_group ({in init});"},
		{"held", "rank 1 on {host} did not come: it stands in openat of {fifo}, while rank 0 waits in init_process_group ({in init});"},
		{"stop", "rank 1 on {host} was stopped (SIGSTOP) and gave no sign of life for {time} (no heartbeat, no " +
			"output, no CPU time){how}; " +
			"rank 0 waits in init_process_group ({in init})"},
		{"deadlock", "rank 1 on {host} did not come: it stands at {at deadlock} in deadlock, and waits for a thread at " +
			"{in thread} in <lambda>, " +
			"while rank 0 waits in init_process_group ({in init});"},
		{"cable", "all 2 ranks wait in all_reduce ({in all_reduce} in joined): none is missing, "},
		{"start", "rank 1 on {host} did not come: it stands at {at start} in unjoined, asleep, while rank 0 waits in " +
			"init_process_group ({in init});"},
		{"ddp", "rank 1 on {host} did not come: it stands at {at ddp} in joined, asleep, while rank 0 waits in " +
			"DistributedDataParallel ({in ddp} in joined);"},
	} {
		t.Run(row.how, func(t *testing.T) {
			t.Parallel()
			p := newLongPyTorch(t)
			out := p.runHanging(row.how, "--hang", "2s")
			if out.code != 1 {
				t.Errorf("exit code %d, want 1", out.code)
			}
			want := p.hangWords(row.says)
			if !want.MatchString(out.stderr) {
				t.Errorf("it does not say %s:\n%s", want, hangReport(out.stderr))
			}
		})
	}
}

// Ranks that make progress do not hang: with a slow first step, a long save for which the others wait, or steps in between.
func TestTorchThatGetsOnDoesNotHang(t *testing.T) {
	t.Parallel()
	p := newLongPyTorch(t)
	play := func(limit int) output { // in seconds
		return p.runHanging("healthy", "--hang", fmt.Sprintf("%ds", limit), fmt.Sprint(limit))
	}
	out := play(3)
	if strings.Contains(out.stderr, "gave a sign of life") { // on a busy machine a rank may not get the processor for that long
		t.Logf("once more, in four times the time:\n%s", hangReport(out.stderr))
		out = play(12)
	}
	if out.code != 0 || strings.Count(out.stdout, "healthy") != 2 {
		t.Errorf("exit code %d:\n%s", out.code, out.stderr)
	}
}

// runHanging runs hang.py with two ranks. The arguments after the limit are passed to hang.py.
func (p *pytorch) runHanging(how string, flag, limit string, words ...string) output {
	p.t.Helper()
	if err := unix.Mkfifo(p.fifo(), 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		p.t.Fatal(err)
	}
	p.env = append(p.env, "FIFO="+p.fifo())
	return p.run(append([]string{"--nproc-per-node", "2", flag, limit, "--log-dir", filepath.Join(p.dir, "logs"), p.script("hang.py"), how},
		words...)...)
}

func (p *pytorch) fifo() string { return filepath.Join(p.dir, "data") }

// hangWords returns the pattern of a verdict.
func (p *pytorch) hangWords(says string) *regexp.Regexp {
	p.t.Helper()
	text, err := os.ReadFile(p.script("hang.py"))
	if err != nil {
		p.t.Fatal(err)
	}
	pattern := regexp.MustCompile(`\{[a-z_ ]+\}`).ReplaceAllStringFunc(says, func(name string) string {
		name = strings.Trim(name, "{}")
		switch name {
		case "host":
			return "\x00[^ ]+\x00"
		case "pid":
			return "\x00[0-9]+\x00"
		case "time":
			return "\x00[0-9.]+s\x00"
		case "how": // whether it became silent before the other one, or together with it
			return "\x00[^;]*\x00"
		case "fifo":
			return p.fifo()
		}
		before, _, found := bytes.Cut(text, []byte("# "+name+"\n"))
		if !found {
			p.t.Fatalf("hang.py has no line %q", name)
		}
		return fmt.Sprintf("hang.py:%d", bytes.Count(before, []byte("\n"))+1)
	})
	parts := strings.Split(pattern, "\x00") // every second one is already a pattern
	for i := 0; i < len(parts); i += 2 {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?m)^ddpbatch: ` + strings.Join(parts, ""))
}

// hangReport returns the report of a hang without the output of the ranks.
func hangReport(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "[") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
