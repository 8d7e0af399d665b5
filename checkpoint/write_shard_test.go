package checkpoint

import (
	"bytes"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
)

// A shard that EncodeShard has encoded and CopyShard has copied into a draft is byte for byte the one that WriteShard writes.
func TestEncodeShardIsWriteShard(t *testing.T) {
	t.Parallel()
	fsys := vfstest.NewMem()
	d, err := Open("/checkpoints", Options{FS: fsys, Run: "r", Attempt: 1, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	pieces := []Piece{{Tensor: "w", DType: "float32", Shape: []int{1000}, Data: bytes.Repeat([]byte{1, 2, 3, 4}, 1000)}}
	var buf bytes.Buffer
	info, err := d.EncodeShard(t.Context(), &buf, 7, 1, 2, pieces)
	if err != nil {
		t.Fatal(err)
	}
	draft, err := d.NewDraft(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer draft.Abort()
	written, err := draft.WriteShard(t.Context(), 1, 2, pieces)
	if err != nil || info.Size != written.Size || info.CRC != written.CRC || info.Raw != written.Raw || int64(buf.Len()) != info.Size {
		t.Errorf("encoded %+v in %d bytes, written %+v: %v", info, buf.Len(), written, err)
	}
	other, err := d.NewDraft(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Abort()
	if copied, err := other.CopyShard(t.Context(), 1, 2, bytes.NewReader(buf.Bytes()), info); err != nil || copied.CRC != written.CRC {
		t.Errorf("copied %+v: %v", copied, err)
	}
	if _, err := d.EncodeShard(t.Context(), &buf, 7, 2, 2, pieces); err == nil {
		t.Error("shard 2 of 2 was encoded")
	}
}
