package npy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/replace"
)

// python is the interpreter of Debian's python3-numpy.
const python = "/usr/bin/python3"

// numpy runs a script with NumPy, or skips the test if NumPy is missing.
func numpy(t *testing.T, script string, args ...string) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import numpy").CombinedOutput(); err != nil {
		t.Skipf("needs NumPy for %s: %v: %s", python, err, out)
	}
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("NumPy: %v\n%s", err, out)
	}
	return string(out)
}

var shapes = [][]int{{}, {1}, {5}, {0}, {2, 3}, {0, 4}, {2, 1, 3}, {1234567, 0}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 2}}

// pattern returns a tensor with all kinds of bits.
func pattern(t *testing.T, dtype string, shape []int) checkpoint.Tensor {
	t.Helper()
	size, err := byteSize(dtype, shape)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i*37 + 11)
		if dtype == "bool" {
			data[i] &= 1
		}
	}
	return checkpoint.Tensor{Name: "t", DType: dtype, Shape: shape, Data: data}
}

func saved(t *testing.T, tensor checkpoint.Tensor) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out, tensor.DType, tensor.Shape, replace.Bytes(tensor.Data)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// NumPy loads a file of every type and shape as the right array, and saves that array as the same bytes.
func TestNumPySavesTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	type want struct {
		File  string `json:"file"`
		DType string `json:"dtype"`
		Shape []int  `json:"shape"`
		Raw   []byte `json:"raw"`
	}
	var list []want
	for dtype := range descriptions {
		for i, shape := range shapes {
			tensor := pattern(t, dtype, shape)
			w := want{File: filepath.Join(dir, fmt.Sprint(dtype, i)), DType: dtype, Shape: shape, Raw: tensor.Data}
			if err := os.WriteFile(w.File, saved(t, tensor), 0o600); err != nil {
				t.Fatal(err)
			}
			list = append(list, w)
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	jobs := filepath.Join(dir, "jobs")
	if err := os.WriteFile(jobs, text, 0o600); err != nil {
		t.Fatal(err)
	}
	numpy(t, `
import base64, io, json, sys
import numpy as np
from numpy.lib import format
for job in json.load(open(sys.argv[1])):
    raw, dtype = base64.b64decode(job["raw"] or ""), job["dtype"]
    if dtype == "bfloat16":
        want = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    else:
        want = np.frombuffer(raw, np.dtype(dtype).newbyteorder("<"))
    want = want.reshape(job["shape"])
    got = np.load(job["file"], allow_pickle=False)
    assert got.shape == want.shape and got.dtype == want.dtype and got.tobytes() == want.tobytes(), job
    if hasattr(format, "GROWTH_AXIS_MAX_DIGITS"): # 1.23 and later
        out = io.BytesIO()
        np.save(out, want)
        assert out.getvalue() == open(job["file"], "rb").read(), (job, out.getvalue())
`, jobs)
}

// Every bfloat16 becomes exactly the same value in float32. The data is longer than the buffer.
func TestBfloat16BecomesFloat32Exactly(t *testing.T) {
	data := make([]byte, 0, 2<<16)
	for v := range 1 << 16 {
		data = binary.LittleEndian.AppendUint16(data, uint16(v))
	}
	tensor := checkpoint.Tensor{Name: "b", DType: "bfloat16", Shape: []int{1 << 16}, Data: data}
	want := make([]float32, 1<<16)
	if err := tensor.ConvertTo(want); err != nil {
		t.Fatal(err)
	}
	file := saved(t, tensor)
	got := file[len(file)-4<<16:]
	for v := range want {
		if bits := binary.LittleEndian.Uint32(got[4*v:]); bits != math.Float32bits(want[v]) || bits != uint32(v)<<16 {
			t.Fatalf("%#04x became %#08x", v, bits)
		}
	}
	if _, err := values(&bytes.Buffer{}, "bfloat16").Write(data[:3]); err == nil {
		t.Error("half a number is taken")
	}
}

// A header that is too long for version 1.0, whose length field has two bytes, is of version 2.0.
func TestLongHeaderIsOfVersion2(t *testing.T) {
	for n, version := range map[int]byte{1: 1, 65000: 1, 65536 - 64 - 10: 1, 65536: 2, 70000: 2} {
		header := wrap(strings.Repeat("x", n))
		length, begin := int(binary.LittleEndian.Uint16(header[8:])), 10
		if version == 2 {
			length, begin = int(binary.LittleEndian.Uint32(header[8:])), 12
		}
		if header[6] != version || header[7] != 0 || begin+length != len(header) || len(header)%64 != 0 || header[len(header)-1] != '\n' {
			t.Errorf("%d characters: version %d, length %d of %d", n, header[6], length, len(header))
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestWriteRefusesBadTensors(t *testing.T) {
	for want, tensor := range map[string]checkpoint.Tensor{
		`no type for dtype "quad"`: {DType: "quad"},
		"does not fit":             {DType: "float32", Shape: []int{1 << 40, 1 << 40}},
		"shape [-1] does":          {DType: "float32", Shape: []int{-1}},
	} {
		var out bytes.Buffer
		if err := write(&out, tensor.DType, tensor.Shape, nil); err == nil || !strings.Contains(err.Error(), want) || out.Len() != 0 {
			t.Errorf("error %v, want %q and nothing written", err, want)
		}
	}
	if err := write(failing{}, "bfloat16", []int{2}, replace.Bytes(make([]byte, 4))); err == nil || err.Error() != "full" {
		t.Errorf("error %v", err)
	}
}

func TestWriteFile(t *testing.T) {
	tensor := pattern(t, "bfloat16", []int{3, 2})
	path := filepath.Join(t.TempDir(), "x.npy")
	data := func(n int) func(io.Writer) error {
		return func(w io.Writer) error {
			for i := 0; i < n; i += 4 {
				if _, err := w.Write(tensor.Data[i : i+4]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if err := WriteFile(t.Context(), path, tensor.DType, tensor.Shape, data(8)); !errors.Is(err, errLength) {
		t.Errorf("error %v, want one of the length", err)
	}
	if err := WriteFile(t.Context(), path, "float8_e5m2", nil, data(0)); err == nil || !strings.Contains(err.Error(), "safetensors") {
		t.Errorf("error %v", err)
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 0 {
		t.Errorf("left behind %v, error %v", list, err)
	}
	if err := WriteFile(t.Context(), path, tensor.DType, tensor.Shape, data(12)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := saved(t, tensor); !bytes.Equal(got, want) {
		t.Errorf("the file holds %q, want %q", got, want)
	}
}
