package inspect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ddpbatch/checkpoint"
)

// Verify leaves out checkpoints that a live run removes after they were listed. It does not leave out one that has only lost a shard.
func TestVerifyLeavesOutWhatIsRemoved(t *testing.T) {
	dir, err := checkpoint.Open(filepath.Join(t.TempDir(), "checkpoints"), checkpoint.Options{Run: "x", Attempt: 1})
	if err != nil {
		t.Fatal(err)
	}
	for step := range int64(3) {
		if _, err := dir.Save(t.Context(), &checkpoint.State{Step: step, World: 1}); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := dir.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	verify := func() (string, error) {
		ok := ""
		_, failed, err := Verify(t.Context(), dir, infos, 0, func(_ checkpoint.Info, row Verified) {
			if row.OK {
				ok += fmt.Sprintf("step %d: ok\n", row.Step)
			}
		})
		return ok, errors.Join(append(failed, err)...)
	}
	// The removal of step 0 has begun, and that of step 1 is finished.
	manifest := filepath.Join(infos[0].Path, "MANIFEST.json")
	if err := errors.Join(os.Rename(manifest, filepath.Join(infos[0].Path, "MANIFEST.deleting")), os.RemoveAll(infos[1].Path)); err != nil {
		t.Fatal(err)
	}
	if out, err := verify(); err != nil || out != "step 2: ok\n" {
		t.Errorf("%q, %v, want that step 2 is whole", out, err)
	}
	shards, err := filepath.Glob(filepath.Join(infos[2].Path, "shard-*"))
	if err != nil || len(shards) != 1 {
		t.Fatalf("%q, %v", shards, err)
	}
	if err := os.Remove(shards[0]); err != nil {
		t.Fatal(err)
	}
	if out, err := verify(); err == nil || errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("%q, %v, want that step 2 is not whole", out, err)
	}
	if err := os.RemoveAll(infos[2].Path); err != nil {
		t.Fatal(err)
	}
	if out, err := verify(); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("%q, %v, want ErrNone", out, err)
	}
}
