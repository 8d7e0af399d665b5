package blame

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
)

// The table has the errors that real programs print: those programs that this machine has, each with a fault.
func TestMessagesOfRealProgramsAreKnown(t *testing.T) {
	const python = "/usr/bin/python3"
	for cause, command := range map[string][]string{
		missingModule:              {python, "-c", "import no_such_module"},
		missingModule + ", -m":     {python, "-m", "no_such_module"},
		missingModule + ", in it":  {python, "-m", "no_such_module.train"},
		"missing name in a module": {python, "-c", "from os import no_such_name"},
		"missing script":           {python, "no_such_script.py"},
		"missing file":             {python, "-c", "open('no_such_file')"},
		"syntax error":             {python, "-c", "if x = 1: pass"},
		"wrong arguments":          {python, "-c", "import argparse; argparse.ArgumentParser().parse_args(['--lrr'])"},
		"too many open files": {python, "-c", `import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
files = [open("/dev/null") for _ in range(30)]`},
		"host memory": {python, "-c", `import resource
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
b"x" * 2**32`},
		"file system full":          {python, "-c", `with open("/dev/full", "w") as f: f.write("x" * 9000)`},
		"missing command":           {"/bin/sh", "-c", "no_such_command"},
		"missing command, of bash":  {"/bin/bash", "-c", "no_such_command"},
		"host memory, as bash says": {"/bin/bash", "-c", "sh -c 'kill -KILL $$'\nexit 137"},
	} {
		t.Run(cause, func(t *testing.T) {
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skip(err)
			}
			lines := failureOf(t, command...)
			cause, _, _ := strings.Cut(cause, ",")
			if got := Find(deathOf(lines)); got.Name != cause {
				t.Errorf("%q, of %q; it said %q", got.Name, got.Error, lines)
			}
		})
	}
}

// torchFaults raises an error of PyTorch for each of several causes, and prints the cause and the traceback.
const torchFaults = `
import sys, torch, traceback
from torch import nn
def damaged():
    torch.save(torch.zeros(9), sys.argv[1])
    with open(sys.argv[1], "r+b") as f:
        f.truncate(300)
    torch.load(sys.argv[1])
def nan():
    with torch.autograd.set_detect_anomaly(True):
        torch.sqrt(torch.tensor([-1.0], requires_grad=True)).sum().backward()
for cause, fault in {
    "PyTorch without CUDA": lambda: torch.zeros(1).cuda(),
    "other weights than the model's": lambda: nn.Linear(2, 2).load_state_dict(nn.Linear(3, 3).state_dict()),
    "damaged checkpoint": damaged,
    "not a number": nan,
    "host memory": lambda: torch.empty(2**50),
}.items():
    try:
        fault()
    except Exception:
        print(cause + "\n" + traceback.format_exc(), end="\n\n")
`

// The table also has the exceptions of a real PyTorch.
func TestErrorsOfRealPyTorchAreKnown(t *testing.T) {
	said := torch.Run(t, torchFaults, filepath.Join(t.TempDir(), "last.pt"))
	faults := strings.Split(strings.TrimSpace(said), "\n\n\n")
	if len(faults) != 5 {
		t.Fatalf("%d faults: %q", len(faults), said)
	}
	for _, fault := range faults {
		cause, text, _ := strings.Cut(fault, "\n")
		if got := Find(deathOf(strings.Split(text, "\n"))); got.Name != cause {
			t.Errorf("%s: %q, of %q; it said %s", cause, got.Name, got.Error, text)
		}
	}
}

// failureOf runs a command that must fail, and returns what it wrote to standard error.
func failureOf(t *testing.T, command ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = t.TempDir()
	_, err := cmd.Output()
	failed, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("%q did not fail: %v", command, err)
	}
	return strings.Split(strings.TrimSuffix(string(failed.Stderr), "\n"), "\n")
}
