package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
)

// file returns a file with a header and data, and does not check them.
func file(header string, data ...byte) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

// put writes bytes to a new file and returns its path.
func put(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readAll reads a file from memory, as ReadFile does from disk.
func readAll(data []byte) ([]checkpoint.Tensor, Metadata, error) {
	f, err := parse(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, nil, err
	}
	var tensors []checkpoint.Tensor
	for _, info := range f.Tensors() {
		tensor := checkpoint.Tensor{Name: info.Name, DType: info.DType, Shape: info.Shape, Data: make([]byte, info.Bytes)}
		if err := f.Read(info, 0, tensor.Data); err != nil {
			return nil, nil, err
		}
		tensors = append(tensors, tensor)
	}
	return tensors, f.Metadata(), nil
}

// written returns the bytes that Write writes to a file.
func written(t testing.TB, tensors []checkpoint.Tensor, metadata Metadata) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := Write(path, tensors, metadata); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// python runs testdata/layout.py, or skips the test if Python is missing.
func python(t testing.TB, input string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("needs Python for the second implementation: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), program, append([]string{filepath.Join("testdata", "layout.py")}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8", "PYTHONUTF8=1")
	cmd.Stdin = strings.NewReader(input)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("layout.py %s: %v\n%s", args[0], err, problems.String())
	}
	return out.String()
}

// sameTensors compares two lists of tensors.
func sameTensors(got, want []checkpoint.Tensor) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d tensors, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		if g.Name != w.Name || g.DType != w.DType || fmt.Sprint(g.Shape) != fmt.Sprint(w.Shape) || !bytes.Equal(g.Data, w.Data) {
			return fmt.Errorf("tensor %d is %v, want %v", i, g, w)
		}
	}
	return nil
}

// never returns the Data of a Source that fails with err.
func never(err error) func(io.Writer) error { return func(io.Writer) error { return err } }
