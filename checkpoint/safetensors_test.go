package checkpoint

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/internal/testkit/torch"
)

func TestSafetensorsComeBackAsTheyWent(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var tensors []Tensor
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.]{1,12}`), 0, 5, rapid.ID[string]).Draw(t, "names") {
			shape := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape")
			size, err := byteSize("int16", shape)
			if err != nil {
				t.Fatal(err)
			}
			data := rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")
			tensors = append(tensors, Tensor{Name: name, DType: "int16", Shape: append([]int{}, shape...), Data: data})
		}
		path := filepath.Join(dir, "x.safetensors")
		if err := WriteSafetensors(path, tensors, map[string]string{"format": "pt"}); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSafetensors(path)
		if err != nil {
			t.Fatal(err)
		}
		byName := func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(tensors, byName)
		slices.SortFunc(got, byName)
		equal := slices.EqualFunc(tensors, got, func(a, b Tensor) bool {
			return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && bytes.Equal(a.Data, b.Data)
		})
		if !equal {
			t.Fatalf("wrote %v, read %v", tensors, got)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); left != nil {
			t.Fatalf("left behind: %v", left)
		}
	})
}

// safetensorsFile is a file with a header and data, without a check.
func safetensorsFile(header string, data ...byte) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

func TestSafetensorsRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":             {nil, "too short"},
		"no header":         {binary.LittleEndian.AppendUint64(nil, 1<<62), "does not fit"},
		"a header too long": {binary.LittleEndian.AppendUint64(nil, 5), "does not fit"},
		"no JSON":           {safetensorsFile("[1]"), "no JSON object"},
		"unknown type":      {safetensorsFile(`{"w":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}}`, 0, 0, 0, 0), `type "Q4"`},
		"past the end":      {safetensorsFile(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 0, 0, 0, 0), "do not hold"},
		"another shape":     {safetensorsFile(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 0, 0, 0, 0), "do not hold"},
		"negative":          {safetensorsFile(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[-4,0]}}`, 0, 0, 0, 0), "do not hold"},
		"2^63 elements":     {safetensorsFile(`{"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`), "larger than"},
		"negative shape":    {safetensorsFile(`{"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}`), "negative"},
		"overlap":           {safetensorsFile(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, 0, 0, 0, 0), "middle of another"},
		"a control name":    {safetensorsFile(`{"\u0007":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`), "control character"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			if err := os.WriteFile(path, c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadSafetensors(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with %q and the path", err, c.want)
			}
		})
	}
	if _, err := ReadSafetensors(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a folder: error %v", err)
	}
	twice := []Tensor{{Name: "w", DType: "uint8", Shape: []int{0}}, {Name: "w", DType: "uint8", Shape: []int{0}}}
	if err := WriteSafetensors(filepath.Join(t.TempDir(), "x"), twice, nil); err == nil || !strings.Contains(err.Error(), "two tensors") {
		t.Errorf("two of a name: error %v", err)
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(safetensorsFile(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 1, 2, 3, 4))
	f.Add(safetensorsFile(`{"__metadata__":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		tensors, err := parseSafetensors(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		total := 0
		for _, tensor := range tensors {
			total += len(tensor.Data)
		}
		if total > len(file) {
			t.Errorf("%d bytes of tensors in a file of %d", total, len(file))
		}
	})
}

// Every float16, against the definition of its value.
func TestConvertHalves(t *testing.T) {
	data := make([]byte, 0, 2<<16)
	for h := range 1 << 16 {
		data = binary.LittleEndian.AppendUint16(data, uint16(h))
	}
	got := make([]float32, 1<<16)
	if err := (Tensor{Name: "h", DType: "float16", Shape: []int{1 << 16}, Data: data}).ConvertTo(got); err != nil {
		t.Fatal(err)
	}
	for h, v := range got {
		exponent, fraction := h>>10&31, float64(h&1023)
		want := math.Ldexp(1+fraction/1024, exponent-15)
		switch {
		case exponent == 0:
			want = math.Ldexp(fraction, -24)
		case exponent == 31 && fraction == 0:
			want = math.Inf(1)
		case exponent == 31:
			want = math.NaN()
		}
		if h>>15 == 1 {
			want = -want
		}
		if float64(v) != want && !(math.IsNaN(want) && v != v) || math.Signbit(float64(v)) != (h>>15 == 1) {
			t.Fatalf("%#04x is %v, want %v", h, v, want)
		}
	}
}

func TestConvertTo(t *testing.T) {
	one := make([]float32, 1)
	double := binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.Pi))
	if err := (Tensor{Name: "d", DType: "float64", Data: double}).ConvertTo(one); err != nil || one[0] != math.Pi {
		t.Errorf("float64 gives %v, error %v", one[0], err)
	}
	brain := binary.LittleEndian.AppendUint16(nil, 0xc000)
	if err := (Tensor{Name: "b", DType: "bfloat16", Data: brain}).ConvertTo(one); err != nil || one[0] != -2 {
		t.Errorf("bfloat16 gives %v, error %v", one[0], err)
	}
	if err := (Tensor{Name: "i", DType: "int32", Data: make([]byte, 4)}).ConvertTo(one); err == nil {
		t.Error("int32 is taken for floating-point numbers")
	}
	if err := (Tensor{Name: "s", DType: "float16", Data: make([]byte, 1)}).ConvertTo(one); err == nil {
		t.Error("half a number is taken")
	}
}

// numpy, which PyTorch comes with, reads the file by the format's description.
func TestSafetensorsByItsDescription(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	w := Float32Tensor("0.weight", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6})
	if err := WriteSafetensors(path, []Tensor{w, Float32Tensor("0.bias", []int{1}, []float32{-1})}, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	out := torch.Run(t, `
import sys, json, struct, torch
b = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8+n])
for name in ("0.weight", "0.bias"):
    e = h[name]; first, end = e["data_offsets"]
    print(torch.frombuffer(bytearray(b[8+n+first:8+n+end]), dtype={"F32": torch.float32}[e["dtype"]]).reshape(e["shape"]).tolist())
print(h["__metadata__"], n % 8)
`, path)
	if want := "[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]\n[-1.0]\n{'format': 'pt'} 0\n"; out != want {
		t.Errorf("PyTorch reads %q, want %q", out, want)
	}
}
