package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/torch"
)

// torchLimit is much longer than a few ranks of PyTorch need, including their imports, also on a busy machine.
const torchLimit = 5 * time.Minute

// torchMark is the name of the variable that holds the mark.
const torchMark = "DDPBATCH_TEST_MARK"

// pytorch is the environment of one test for scripts of real PyTorch: a folder to run in, a home folder, and a mark in the environment of
// all that it starts.
type pytorch struct {
	*cluster // for its processes; it has no Slurm
	python   string
	scripts  string // testdata/torch
	mark     string // the value of torchMark
	env      []string
}

// newLongPyTorch is newPyTorch for a test that starts PyTorch many times.
func newLongPyTorch(t *testing.T) *pytorch {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it starts PyTorch many times")
	}
	return newPyTorch(t)
}

func newPyTorch(t *testing.T) *pytorch {
	t.Helper()
	scripts, err := filepath.Abs(filepath.Join("testdata", "torch"))
	if err != nil {
		t.Fatal(err)
	}
	p := &pytorch{
		cluster: &cluster{site: &site{env: os.Environ()}, t: t, dir: t.TempDir()}, python: torch.Python(t), scripts: scripts,
		mark: fmt.Sprintf("%s.%d", t.Name(), rand.Int64()),
	}
	p.env = []string{
		torchMark + "=" + p.mark,
		"HOME=" + t.TempDir(), // for the key file
		"PYTHON_EXEC=" + p.python,
		"PYTHONPATH=" + scripts,
		"PYTHONDONTWRITEBYTECODE=1",
	}
	return p
}

func (p *pytorch) script(name string) string { return filepath.Join(p.scripts, name) }

// launch starts a launcher with the environment p.env.
func (p *pytorch) launch(words ...string) *process {
	p.t.Helper()
	return p.start("env", append(slices.Clone(p.env), words...)...)
}

// run runs `ddpbatch run` on this machine to its end.
func (p *pytorch) run(flags ...string) output {
	p.t.Helper()
	out := p.launch(append([]string{"ddpbatch", "run", "--standalone"}, flags...)...).end(torchLimit)
	p.gone()
	return out
}

// torchrun runs one of PyTorch's own launchers to its end, which must succeed. By default such a launcher checks its workers every five
// seconds. It leaves temporary folders.
func (p *pytorch) torchrun(module string, flags ...string) output {
	p.t.Helper()
	words := []string{"TMPDIR=" + p.t.TempDir(), p.python, "-m", module, "--monitor_interval", "0.1"}
	out := p.launch(append(words, flags...)...).end(torchLimit)
	if out.code != 0 {
		p.t.Fatalf("%s %q: %v", module, flags, out)
	}
	return out
}

// good returns the output of a run that must succeed.
func (p *pytorch) good(flags ...string) output {
	p.t.Helper()
	out := p.run(flags...)
	if out.code != 0 {
		p.t.Fatalf("run %q: %v", flags, out)
	}
	return out
}

// gone checks that no process that was launched is left.
func (p *pytorch) gone() {
	p.t.Helper()
	eventually(p.t, testkit.Patience, "no process of the run is left", func() bool { return len(processesWith(torchMark+"="+p.mark)) == 0 })
}

// linesOf returns the lines that match a pattern, sorted, each from where the match begins.
func linesOf(pattern, text string) []string {
	lines := regexp.MustCompile("(?m)"+pattern+".*$").FindAllString(text, -1)
	slices.Sort(lines)
	return lines
}

// sameLines compares lines in any order.
func sameLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
