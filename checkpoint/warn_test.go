package checkpoint

import (
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
)

// TestWhatStaysIsToldOnce: a damaged record and a folder of somebody else are there for as long as the run goes on. Its log tells of each once, not after
// every save.
func TestWhatStaysIsToldOnce(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	first := openDir(t, Options{FS: m, Run: "r", Attempt: 1})
	must(t, first.Begin(t.Context(), nil))
	record := find(t, m, first.path, "attempt-")
	data := vfstest.Read(t, m, record)
	data[len(data)/2] ^= 1
	must(t, m.Remove(record))
	vfstest.Put(t, m, record, data)
	putFolder(t, m, first, 9, map[string]string{"MANIFEST.json": "[]", "notes.txt": "mine"})

	var journal testkit.Journal
	d := openDir(t, Options{FS: m, Run: "r", Attempt: 2, Keep: Policy{Last: 2}, Log: journal.Logger()})
	for step := int64(1); step <= 4; step++ {
		save(t, d, testState(step, 0))
		c, err := d.FindLatest(t.Context())
		must(t, err)
		must(t, c.Close())
	}
	for _, what := range []string{"record of an attempt is damaged", "has the name of one"} {
		if got := strings.Count(journal.String(), what); got != 1 {
			t.Errorf("%q is told %d times:\n%s", what, got, journal.String())
		}
	}
}
