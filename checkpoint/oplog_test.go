package checkpoint

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/vfs"
)

var update = flag.Bool("update", false, "rewrite testdata/oplog.txt")

// TestOperationLog compares the file operations of saves with testdata/oplog.txt, which was
// reviewed by hand against the order that package documentation promises: a change of the order
// shows in a diff. Operations that only read are left out, except the length check.
func TestOperationLog(t *testing.T) {
	t.Parallel()
	in := vfs.NewInjector(newMem(t), nil)
	d := openDir(t, Options{FS: in, Codec: "none", KeepLast: 2, Run: "golden", Attempt: 3})
	var log strings.Builder
	seen := 0
	for _, part := range []struct {
		title string
		step  int64
	}{
		{"the first save of a run", 100},
		{"a later save", 200},
		{"a save that prunes step 100", 300},
		{"a save that replaces step 300", 300},
	} {
		save(t, d, testState(part.step, 0))
		ops := in.Log()
		log.WriteString("# " + part.title + "\n")
		for _, op := range ops[seen:] {
			switch op.Kind {
			case "open", "read", "readdir":
				continue
			case "stat":
				if !strings.HasSuffix(op.Path, tmpSuffix) {
					continue
				}
			}
			log.WriteString(strings.ReplaceAll(op.String(), testPath, "checkpoints") + "\n")
		}
		log.WriteString("\n")
		seen = len(ops)
	}
	golden := filepath.Join("testdata", "oplog.txt")
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(golden, []byte(log.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if log.String() != string(want) {
		t.Errorf("the operations are\n%s\nwant those of %s\n%s", log.String(), golden, want)
	}
}
