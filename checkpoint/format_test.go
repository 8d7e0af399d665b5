package checkpoint

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
)

// TestFormatDocument compares the worked example of docs/format.md with the program's bytes.
func TestFormatDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "format.md"))
	must(t, err)
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Codec: "none", Run: "mnist", Attempt: 1})
	d.program = "ddpbatch v0.1.0"
	d.nonce = func() uint32 { return 0x5f2c91d0 }
	s := &State{
		Step: 7, World: 2,
		Tensors: []Tensor{
			Float32Tensor("w", []int{2}, []float32{1, -2}),
			{Name: "n", DType: "int64", Data: []byte{3, 0, 0, 0, 0, 0, 0, 0}},
		},
		Values: map[string]json.RawMessage{"sampler.epoch": json.RawMessage("1"), "lr": json.RawMessage("0.1")},
	}
	save(t, d, s)

	manifest := vfstest.Read(t, m, d.stepPath(7)+"/"+manifest.Name)
	if want := block(t, string(text), "json"); string(manifest) != want {
		t.Errorf("the manifest is\n%s\nthe document says\n%s", manifest, want)
	}
	shard := vfstest.Read(t, m, d.stepPath(7)+"/shard-00000-of-00001.1-bcb721c3-5f2c91d0.ddpt")
	var want strings.Builder
	for line := range strings.Lines(block(t, string(text), "hex")) {
		bytes, _, _ := strings.Cut(line, "#")
		want.WriteString(strings.Join(strings.Fields(bytes), ""))
	}
	if got := hex.EncodeToString(shard); got != want.String() {
		t.Errorf("the shard is\n%s\nthe document says\n%s", got, want.String())
	}
	for _, said := range []string{fmt.Sprintf("%d bytes:\n\n```json", len(manifest)), fmt.Sprintf("%d bytes:\n\n```hex", len(shard))} {
		if !strings.Contains(string(text), said) {
			t.Errorf("the document does not say %q", said)
		}
	}
}

// block returns the only fenced block of a language.
func block(t *testing.T, text, language string) string {
	t.Helper()
	parts := strings.Split(text, "```"+language+"\n")
	if len(parts) != 2 {
		t.Fatalf("%d blocks of %s", len(parts)-1, language)
	}
	body, _, ok := strings.Cut(parts[1], "```")
	if !ok {
		t.Fatalf("block of %s without an end", language)
	}
	return body
}

// TestGoldenVersion1 reads a checkpoint that was written once by the first program with version 1
// and must stay readable for ever. It is never written again; what is in it stands here by hand.
func TestGoldenVersion1(t *testing.T) {
	t.Parallel()
	d, err := Open(filepath.Join("testdata", "v1"), Options{})
	must(t, err)
	s, info, err := d.Latest(t.Context())
	must(t, err)
	want := &State{
		Step: 7, World: 4,
		Tensors: []Tensor{
			{Name: "ramp", DType: "float32", Shape: []int{4}, Data: []byte{ // 0, 0.5, -1, 2
				0, 0, 0, 0, 0, 0, 0, 0x3f, 0, 0, 0x80, 0xbf, 0, 0, 0, 0x40,
			}},
			{Name: "zeros", DType: "uint8", Shape: []int{10, 100}, Data: make([]byte, 1000)}, // a zstd chunk
			{Name: "empty", DType: "int64", Shape: []int{0, 3}},
			{Name: "count", DType: "int64", Data: []byte{0x34, 0x12, 0, 0, 0, 0, 0, 0}},
		},
		Values: map[string]json.RawMessage{
			"sampler.epoch": json.RawMessage("3"),
			"random.state":  json.RawMessage("[1,18446744073709551615]"),
			"note":          json.RawMessage(`"ü <&>"`),
		},
	}
	wantState(t, s, want)
	if info.Attempt != 2 || info.World != 4 || info.Created.Unix() != 1767323045 || info.Bytes != 180+806 {
		t.Errorf("described as %+v", info)
	}
}
