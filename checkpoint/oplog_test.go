package checkpoint

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

var update = flag.Bool("update", false, "rewrite testdata/oplog.txt")

// TestOperationLog compares the file operations of saves with testdata/oplog.txt, which was
// reviewed by hand against the order that package documentation promises: a change of the order
// shows in a diff. Operations that only read are left out, except the length check.
func TestOperationLog(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	in := vfs.NewInjector(m, nil)
	d := openDir(t, Options{FS: in, Codec: "none", Keep: Policy{Last: 2}, Run: "golden", Attempt: 3})
	step := func(step int64) func() { return func() { save(t, d, testState(step, 0)) } }
	var log strings.Builder
	seen := 0
	for _, part := range []struct {
		title string
		do    func()
	}{
		{"a probe", func() { _, err := d.Probe(t.Context(), "host"); must(t, err) }},
		{"an attempt begins from nothing", func() { must(t, d.Begin(t.Context(), nil)) }},
		{"the first save of a run", step(100)},
		{"a later save", step(200)},
		{"a save that prunes step 100", step(300)},
		{"another save of step 300", step(300)},
		{"a pin", func() { must(t, d.Pin(t.Context(), 200, "best")) }},
		{"step 200 is damaged, and rejected", func() {
			path := find(t, m, d.stepPath(200), "shard-")
			vfstest.Put(t, m, path, flip(vfstest.Read(t, m, path), 8*100))
			c, err := d.Find(t.Context(), 200)
			must(t, err)
			must(t, d.Reject(t.Context(), c))
			must(t, c.Close())
		}},
	} {
		part.do()
		ops := in.Log()
		log.WriteString("# " + part.title + "\n")
		for _, op := range ops[seen:] {
			switch op.Kind {
			case "open", "read", "readdir", "space":
				continue
			case "stat":
				if !strings.HasSuffix(op.Path, manifest.TmpSuffix) {
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
