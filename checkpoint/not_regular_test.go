package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
)

// TestPipeInPlaceOfAFile: a pipe, or a folder, with the name of a manifest or a shard is damage, and nobody waits for it.
func TestPipeInPlaceOfAFile(t *testing.T) {
	t.Parallel()
	makers := map[string]func(path string) error{
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o755) },
	}
	for kind, put := range makers {
		for _, file := range []string{manifest.Name, "shard-"} {
			t.Run(kind+" "+file, func(t *testing.T) {
				t.Parallel()
				d, err := Open(filepath.Join(t.TempDir(), "checkpoints"), Options{Run: "r", Attempt: 1})
				must(t, err)
				save(t, d, testState(1, 0))
				info := save(t, d, testState(2, 0))
				found, err := filepath.Glob(filepath.Join(info.Path, file+"*"))
				must(t, err)
				if len(found) != 1 {
					t.Fatalf("%q", found)
				}
				must(t, errors.Join(os.Remove(found[0]), put(found[0])))

				tool, err := Open(d.path, Options{})
				must(t, err)
				list, err := tool.List(t.Context())
				if err != nil || len(list) != 2 || list[1].State != StateBroken {
					t.Errorf("List: %+v, %v", list, err)
				}
				err = tool.Verify(t.Context(), 2, false)
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), found[0]+": it is no regular file") {
					t.Errorf("Verify: %v", err)
				}
				next, err := Open(d.path, Options{Run: "r", Attempt: 2})
				must(t, err)
				c, err := next.FindForResume(t.Context())
				must(t, err)
				defer c.Close()
				if c.Step() != 1 {
					t.Errorf("resumed from step %d, want 1", c.Step())
				}
			})
		}
	}
}
