package safetensors

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/checkpoint"
)

// TestWriteGivesUpstreamsBytes compares with the bytes in the format's own tests (test_serialization, test_empty and
// test_serialization_forced_alignement of safetensors/src/tensor.rs).
func TestWriteGivesUpstreamsBytes(t *testing.T) {
	attn := []float32{0, 1, 2, 3, 4, 5}
	data := "\x00\x00\x00\x00\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40\x00\x00\xa0\x40"
	for name, c := range map[string]struct {
		tensors  []checkpoint.Tensor
		metadata Metadata
		want     string
	}{
		"test_serialization": {
			tensors: []checkpoint.Tensor{checkpoint.Float32Tensor("attn.0", []int{1, 2, 3}, attn)},
			want:    "\x40\x00\x00\x00\x00\x00\x00\x00" + `{"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}}` + data,
		},
		"test_empty": {want: "\x08\x00\x00\x00\x00\x00\x00\x00{}      "},
		"test_empty with metadata": {
			metadata: Metadata{{Key: "framework", Value: "pt"}},
			want:     "\x28\x00\x00\x00\x00\x00\x00\x00" + `{"__metadata__":{"framework":"pt"}}     `,
		},
		"test_serialization_forced_alignement": {
			tensors: []checkpoint.Tensor{checkpoint.Float32Tensor("attn0", []int{1, 1, 2, 3}, attn)},
			want:    "\x48\x00\x00\x00\x00\x00\x00\x00" + `{"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       ` + data,
		},
		"metadata without a member": {
			metadata: Metadata{},
			want:     "\x18\x00\x00\x00\x00\x00\x00\x00" + `{"__metadata__":{}}     `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := written(t, c.tensors, c.metadata); string(got) != c.want {
				t.Errorf("wrote %q, want %q", got, c.want)
			}
		})
	}
}

// names are names that JSON must escape, or that an encoder might escape without need.
var names = []string{
	"w", "layer.0.weight", `quote " and \ and /`, "\b\t\n\v\f\r\x01\x1f\x7f", "<&>", "\u00e9\u2028\U0001f600", "\u0104", "\U00010000", "",
}

// TestWriteIsByteExact writes every type, in another order than that of the file, with names that need escapes. The bytes must be those of
// the second implementation, and each implementation must read the other's file.
func TestWriteIsByteExact(t *testing.T) {
	type job struct {
		Metadata [][2]string `json:"metadata"`
		Tensors  [][]any     `json:"tensors"`
	}
	var tensors []checkpoint.Tensor
	want := job{Metadata: [][2]string{{"format", "pt"}, {"a \"b\"", "\u00e9\n"}}}
	add := func(name string, which dtype, shape []int) {
		size, err := byteSize(which, shape)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(7*i + len(tensors))
		}
		tensors = append(tensors, checkpoint.Tensor{Name: name, DType: which.ours, Shape: shape, Data: data})
		want.Tensors = append(want.Tensors, []any{name, which.name, shape, hex.EncodeToString(data)})
	}
	for i, which := range dtypes {
		if which.ours != "" {
			add("b"+which.name, which, []int{2, i % 3, 3})
			add("a"+which.name, which, []int{})
		}
	}
	for i, name := range names {
		add(name, dtypes[typeNamed("BF16")], []int{i})
	}
	metadata := Metadata{}
	for _, m := range want.Metadata {
		metadata = append(metadata, Field{Key: m[0], Value: m[1]})
	}
	input, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(t.TempDir(), "theirs")
	python(t, string(input), "write", theirs)
	theirBytes, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	ours := written(t, tensors, metadata)
	if !bytes.Equal(ours, theirBytes) {
		t.Errorf("wrote\n%q\nthe second implementation\n%q", ours, theirBytes)
	}

	var read job
	if err := json.Unmarshal([]byte(python(t, "", "read", put(t, ours))), &read); err != nil {
		t.Fatal(err)
	}
	got, gotMetadata, err := ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(gotMetadata, metadata) || !slices.Equal(read.Metadata, want.Metadata) || len(got) != len(read.Tensors) {
		t.Errorf("metadata %q and %q, %d and %d tensors", gotMetadata, read.Metadata, len(got), len(read.Tensors))
	}
	for i, tensor := range got {
		if read.Tensors[i][0] != tensor.Name || read.Tensors[i][3] != hex.EncodeToString(tensor.Data) {
			t.Errorf("tensor %d is %q, the second implementation reads %v", i, tensor.Name, read.Tensors[i])
		}
	}
}

// A written file reads back as what was written, and what was read is written as the same bytes.
func TestWrittenFileReadsBack(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var tensors []checkpoint.Tensor
		for _, name := range rapid.SliceOfNDistinct(rapid.StringN(0, 12, -1), 0, 6, rapid.ID[string]).Draw(t, "names") {
			which := rapid.SampledFrom(dtypes[:]).Filter(func(d dtype) bool { return d.ours != "" }).Draw(t, "dtype")
			shape := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape")
			size, _ := byteSize(which, shape)
			data := rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")
			tensors = append(tensors, checkpoint.Tensor{Name: strings.ToValidUTF8(name, ""), DType: which.ours, Shape: shape, Data: data})
		}
		var metadata Metadata
		for _, key := range rapid.SliceOfNDistinct(rapid.StringN(0, 5, -1), 0, 3, rapid.ID[string]).Draw(t, "keys") {
			metadata = append(metadata, Field{Key: key, Value: rapid.String().Draw(t, "value")})
		}
		first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
		if err := Write(first, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		got, gotMetadata, err := ReadFile(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(second, got, gotMetadata); err != nil {
			t.Fatal(err)
		}
		a, _ := os.ReadFile(first)
		b, _ := os.ReadFile(second)
		if !bytes.Equal(a, b) {
			t.Fatalf("%q became %q", a, b)
		}
		byName := func(a, b checkpoint.Tensor) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(tensors, byName)
		slices.SortFunc(got, byName)
		if err := sameTensors(got, tensors); err != nil || !slices.Equal(gotMetadata, metadata) {
			t.Fatal(err, gotMetadata)
		}
	})
}

func TestWriteRefusesBadTensors(t *testing.T) {
	w := checkpoint.Tensor{Name: "w", DType: "uint8", Shape: []int{1}, Data: []byte{1}}
	with := func(change func(*checkpoint.Tensor)) []checkpoint.Tensor {
		c := w
		change(&c)
		return []checkpoint.Tensor{c}
	}
	for want, c := range map[string]struct {
		tensors  []checkpoint.Tensor
		metadata Metadata
	}{
		`two tensors are named "w"`: {tensors: []checkpoint.Tensor{w, w}},
		`no type for dtype "quad"`:  {tensors: with(func(t *checkpoint.Tensor) { t.DType = "quad" })},
		`no type for dtype ""`:      {tensors: with(func(t *checkpoint.Tensor) { t.DType = "" })},
		"negative dimension":        {tensors: with(func(t *checkpoint.Tensor) { t.Shape = []int{-1} })},
		"is too large":              {tensors: with(func(t *checkpoint.Tensor) { t.Shape = []int{1 << 40, 1 << 40} })},
		"not as long as its shape":  {tensors: with(func(t *checkpoint.Tensor) { t.Shape = []int{2} })},
		"as its shape says":         {tensors: with(func(t *checkpoint.Tensor) { t.Shape = []int{0} })},
		`be named "__metadata__"`:   {tensors: with(func(t *checkpoint.Tensor) { t.Name = "__metadata__" })},
		`be named "\xff"`:           {tensors: with(func(t *checkpoint.Tensor) { t.Name = "\xff" })},
		`metadata "a" occurs`:       {metadata: Metadata{{Key: "a"}, {Key: "a"}}},
		`metadata "b" occurs`:       {metadata: Metadata{{Key: "b", Value: "\xff"}}},
	} {
		dir := t.TempDir()
		err := Write(filepath.Join(dir, "x"), c.tensors, c.metadata)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%q: left behind %v", want, left)
		}
	}
}

// Neither a tensor that fails nor a canceled context changes the existing file.
func TestFailedWriteChangesNothing(t *testing.T) {
	path := put(t, []byte("before"))
	broken := errors.New("broken")
	source := Source{Name: "w", DType: "uint8", Shape: []int{1}, Data: never(broken)}
	if err := WriteSources(t.Context(), path, []Source{source}, nil); !errors.Is(err, broken) ||
		!strings.Contains(err.Error(), `tensor "w"`) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	source.Data = func(w io.Writer) error {
		cancel()
		_, err := w.Write([]byte{1})
		return err
	}
	if err := WriteSources(ctx, path, []Source{source}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "before" {
		t.Errorf("the file holds %q, error %v", data, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left behind %v", left)
	}
}
