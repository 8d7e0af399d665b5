package chunk_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

// TestFormatDocument compares the chunk of docs/format.md with the program's bytes.
func TestFormatDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "format.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```chunk\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("the document has no chunk")
	}
	var digits strings.Builder
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	want, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for k := range 16 {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(-1-float32(k)/16))
	}
	l := chunk.Layout{Width: 4, Float: true}
	if got, m := newEncoder(t, chunk.Auto).Encode(raw, nil, l); m != chunk.Planes || !bytes.Equal(got, want) {
		t.Errorf("method %d:\n% x\nthe document says\n% x", m, got, want)
	}
	got := make([]byte, len(raw))
	if err := newDecoder(t).Decode(got, want, chunk.Planes, l, nil); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("the document's chunk decodes to % x (%v)", got, err)
	}
}
