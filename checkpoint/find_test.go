package checkpoint

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
)

// FindForResume renames a checkpoint if its length or its checksum is wrong on two reads and the caller is an attempt of the same run. It
// renames nothing else.
func TestFindForResumeSetsDamageAside(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		spoil   func(t *testing.T, m *vfstest.Mem, manifestPath, shardPath string)
		o       Options // FS is set below, and Run is "r" if it is empty
		heals   bool    // the files are good again when they are read a second time
		fault   func(op vfstest.Op) error
		renamed bool
		step    int64 // the step that is found
		err     error
	}{
		{name: "shard cut short", spoil: cutShard, renamed: true, step: 1},
		{name: "manifest cut short", spoil: cutManifest, renamed: true, step: 1},
		{name: "manifest empty", spoil: func(t *testing.T, m *vfstest.Mem, path, _ string) { vfstest.Put(t, m, path, nil) },
			renamed: true, step: 1},
		{name: "bit of the manifest", spoil: flipManifest, renamed: true, step: 1},
		{name: "bit of a shard's table", spoil: flipTable, renamed: true, step: 1},
		{name: "shard is good again", spoil: cutShard, heals: true, step: 2},
		{name: "manifest is good again", spoil: cutManifest, heals: true, step: 2},
		{name: "shard gone", spoil: func(t *testing.T, m *vfstest.Mem, _, path string) { must(t, m.Remove(path)) }, step: 1},
		{name: "manifest of another step", spoil: func(t *testing.T, m *vfstest.Mem, path, _ string) {
			first := strings.Replace(path, manifest.StepFolder(2), manifest.StepFolder(1), 1)
			vfstest.Put(t, m, path, vfstest.Read(t, m, first))
		}, step: 1},
		{name: "manifest of a newer format", spoil: func(t *testing.T, m *vfstest.Mem, path, _ string) {
			vfstest.Put(t, m, path, newerManifest(vfstest.Read(t, m, path)))
		}, err: ErrFormatTooNew},
		{name: "tool", spoil: cutShard, o: Options{}, step: 1},
		{name: "another run", spoil: cutShard, o: Options{Run: "s", Attempt: 5}, step: 1},
		{name: "another run, the manifest", spoil: cutManifest, o: Options{Run: "s", Attempt: 5}, step: 1},
		{name: "superseded attempt", spoil: cutShard, o: Options{Run: "r", Attempt: 2, Fence: func() error { return errNewer }},
			err: ErrFenced},
		{name: "second look fails", spoil: cutShard, fault: func(vfstest.Op) error { return syscall.EIO }, step: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := vfstest.New(t)
			first := attempt(t, m, 1, Policy{})
			save(t, first, testState(1, 0))
			save(t, first, testState(2, 0))
			manifestPath, shardPath := filepath.Join(first.stepPath(2), manifest.Name), find(t, m, first.stepPath(2), "shard-")
			goodManifest, goodShard := vfstest.Read(t, m, manifestPath), vfstest.Read(t, m, shardPath)
			test.spoil(t, m, manifestPath, shardPath)
			look := saved
			if errors.Is(test.err, ErrFenced) {
				look = tree // a fenced attempt does not even close gates
			}
			before := look(t, m)

			opened := map[string]int{}
			o := test.o
			if o.Run == "" && test.name != "tool" {
				o.Run, o.Attempt = "r", 2
			}
			var log bytes.Buffer
			o.Log = logTo(&log)
			o.FS = vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
				if op.Kind != "open" || op.Path != manifestPath && op.Path != shardPath {
					return vfstest.Fault{}
				}
				opened[op.Path]++
				if test.heals && opened[manifestPath] == 2 && op.Path == manifestPath {
					vfstest.Put(t, m, manifestPath, goodManifest)
					vfstest.Put(t, m, shardPath, goodShard)
				}
				if test.fault != nil && op.Path == shardPath && opened[shardPath] > 1 {
					return vfstest.Fault{Err: test.fault(op)}
				}
				return vfstest.Fault{}
			})
			d := openDir(t, o)
			c, err := d.FindForResume(t.Context())
			if test.err != nil {
				wantErr(t, "FindForResume", err, test.err)
			} else {
				must(t, err)
				if c.Step() != test.step {
					t.Errorf("found step %d, want %d; log %s", c.Step(), test.step, &log)
				}
				must(t, c.Close())
			}
			_, gone := m.Stat(first.stepPath(2))
			_, there := m.Stat(first.stepPath(2) + ".broken")
			if renamed := gone != nil && there == nil; renamed != test.renamed {
				t.Errorf("renamed: %v, want %v; log %s", renamed, test.renamed, &log)
			}
			if !test.renamed && !test.heals && !slices.Equal(look(t, m), before) {
				t.Errorf("the folder was %v, is %v", before, look(t, m))
			}
			if c != nil && c.Step() == 1 && !strings.Contains(log.String(), "level=WARN") {
				t.Errorf("nothing is said: %s", &log)
			}
		})
	}
}

func cutShard(t *testing.T, m *vfstest.Mem, _, path string) {
	data := vfstest.Read(t, m, path)
	vfstest.Put(t, m, path, data[:len(data)-9])
}

func cutManifest(t *testing.T, m *vfstest.Mem, path, _ string) {
	data := vfstest.Read(t, m, path)
	vfstest.Put(t, m, path, data[:len(data)/2])
}

func flipManifest(t *testing.T, m *vfstest.Mem, path, _ string) {
	vfstest.Put(t, m, path, flip(vfstest.Read(t, m, path), 8*5+1))
}

func flipTable(t *testing.T, m *vfstest.Mem, _, path string) {
	data := vfstest.Read(t, m, path)
	vfstest.Put(t, m, path, flip(data, 8*(len(data)-trailerBytes-4)))
}

// If all checkpoints are corrupt, FindForResume sets all of them aside, and the error names the folders as they are then.
func TestFindForResumeSetsAsideAllThatIsCorrupt(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{})
	save(t, d, testState(1, 0))
	save(t, d, testState(2, 0))
	cutManifest(t, m, filepath.Join(d.stepPath(1), manifest.Name), "")
	cutShard(t, m, "", find(t, m, d.stepPath(2), "shard-"))
	_, err := attempt(t, m, 2, Policy{}).FindForResume(t.Context())
	wantErr(t, "FindForResume", err, ErrCorrupt)
	for _, want := range []string{"step-000000000002.broken", "step-000000000001.broken", "bytes long, the manifest says"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	wantList(t, d, "1 broken, 2 broken")
}

// newerManifest returns the manifest with the version of a future format and the right checksum.
func newerManifest(data []byte) []byte {
	body, _, _ := strings.Cut(string(data), ",\n  \"crc32c\"")
	return sealed(strings.Replace(body, `"version": 2`, `"version": 12`, 1))
}
