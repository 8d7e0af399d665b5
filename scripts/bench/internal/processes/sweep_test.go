package processes

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ddpbatch/internal/testkit"
)

// What starts processes while it is swept leaves none of them.
func TestSweepFindsTheLate(t *testing.T) {
	mark, file := markVariable+"="+rand.Text(), filepath.Join(t.TempDir(), "started")
	cmd := exec.Command("/bin/sh", "-c", `i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); echo $i >"$1"; done; wait`, "sh", file)
	cmd.Env = append(os.Environ(), mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "some have been started", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && len(text) > 0
	})
	sweep(mark)
	if left := marked(mark); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
	_ = cmd.Wait() // it was killed
}
