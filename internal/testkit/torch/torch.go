package torch

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// python is the interpreter of Debian's python3-torch.
const python = "/usr/bin/python3"

// Run runs a Python script that imports torch, with one thread, and returns its output. It skips the test if PyTorch is not installed, and
// fails the test if the script fails.
func Run(t testing.TB, script string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, Python(t), append([]string{"-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("PyTorch: %v\n%s", err, problems.String())
	}
	return out.String()
}

// Python returns an interpreter that has PyTorch, for tests that start scripts themselves. It skips the test if there is none.
func Python(t testing.TB) string {
	t.Helper()
	if why := missing(); why != "" {
		t.Skipf("needs PyTorch for %s: %s", python, why)
	}
	return python
}

// missing says why PyTorch is not available, or is empty. It is determined once, because that takes a second.
var missing = sync.OnceValue(func() string {
	out, err := exec.Command(python, "-c", "import torch").CombinedOutput()
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%v: %s", err, lastLine(string(out)))
})

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// WriteFloats writes v to path as numpy.fromfile(path, "<f4") reads it.
func WriteFloats(t testing.TB, path string, v []float32) {
	t.Helper()
	data, err := binary.Append(nil, binary.LittleEndian, v)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ReadFloats reads what numpy's tofile wrote as "<f4".
func ReadFloats(t testing.TB, path string) []float32 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, len(data)/4)
	if _, err := binary.Decode(data, binary.LittleEndian, v); err != nil {
		t.Fatal(err)
	}
	return v
}
