package replace

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"ddpbatch/internal/vfs"
)

// TestDirIsDurable: a folder that Dir has made survives a power cut, with its parents; also one that was there already, not synced.
func TestDirIsDurable(t *testing.T) {
	for _, there := range []bool{false, true} {
		m := vfs.NewMem()
		if there { // but its name is not durable
			if err := m.Mkdir("/a"); err != nil {
				t.Fatal(err)
			}
		}
		path := "/a/b/c"
		if there {
			path = "/a"
		}
		if err := Dir(m, path); err != nil {
			t.Fatal(err)
		}
		if _, err := m.CrashClone(0, rand.New(rand.NewPCG(1, 1))).Stat(path); err != nil {
			t.Error(err)
		}
	}
	refusing := vfs.NewInjector(vfs.NewMem(), func(_ int, op vfs.Op) vfs.Fault {
		if op.Kind == "mkdir" && op.Path == "/a" {
			return vfs.Fault{Err: syscall.EACCES}
		}
		return vfs.Fault{}
	})
	if err := Dir(refusing, "/a/b"); !errors.Is(err, syscall.EACCES) {
		t.Errorf("Dir below a folder that cannot be made: %v", err)
	}
}
