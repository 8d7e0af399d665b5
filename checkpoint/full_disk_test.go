package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk fills a real file system of 1 MiB. The save that does not fit says so, leaves
// nothing behind, and the checkpoint before it stays good.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs to mount a tmpfs, which takes root: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	path := filepath.Join(dir, "checkpoints")
	d, err := Open(path, Options{Codec: "none", Keep: Policy{Last: 2}, Attempt: 1})
	must(t, err)
	small := testState(1, 0)
	save(t, d, small)

	large := testState(2, 0)
	large.Tensors[1] = Tensor{Name: "large", DType: "uint8", Shape: []int{2 << 20}, Data: make([]byte, 2<<20)}
	_, err = d.Save(context.Background(), large)
	wantErr(t, "Save", err, ErrNoSpace, syscall.ENOSPC)
	if errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "free space") {
		t.Errorf("error %v does not say what to do", err)
	}
	entries, err := os.ReadDir(path)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	s, _, err := d.Latest(context.Background())
	must(t, err)
	wantState(t, s, small)
	save(t, d, testState(2, 1)) // there is room for a small one again
}
