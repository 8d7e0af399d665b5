package checkpoint

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// TestForeignFolders: a folder that only has the name of a checkpoint's is nobody's torn save. It is passed over, with a note, and stays.
func TestForeignFolders(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"no manifest":             {"weights.bin": "abc", "notes.txt": "mine"},
		"unrelated manifest":      {"MANIFEST.json": `{"name": "an extension", "manifest_version": 3}`, "x.js": ""},
		"unrelated manifest only": {"MANIFEST.json": "[]"},
		"huge manifest":           {"MANIFEST.json": strings.Repeat("x", manifest.MaxBytes+1)},
		"empty manifest":          {"MANIFEST.json": "", "model.pt": "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := vfstest.New(t)
			var log bytes.Buffer
			d := openDir(t, Options{FS: m, Run: "r", Attempt: 1, Keep: Policy{Last: 2}, Log: logTo(&log)})
			save(t, d, testState(1, 0))
			foreign := putFolder(t, m, d, 123, files)
			wantList(t, d, "1 committed")
			if !strings.Contains(log.String(), "not a checkpoint") || !strings.Contains(log.String(), "step-000000000123") {
				t.Errorf("log %q has no note", &log)
			}
			log.Reset()
			c, err := d.FindForResume(t.Context())
			must(t, err)
			if c.Step() != 1 {
				t.Errorf("found step %d", c.Step())
			}
			must(t, c.Close())
			if strings.Contains(log.String(), "corrupt") {
				t.Errorf("log %s", &log)
			}
			wantErr(t, "Find", errOf(d.Find(t.Context(), 123)), ErrNone)
			wantErr(t, "Verify", d.Verify(t.Context(), 123, true), ErrNone)
			wantErr(t, "FindFolder", errOf(d.FindFolder(t.Context(), manifest.StepFolder(123))), ErrNone)
			for step := int64(2); step < 7; step++ {
				save(t, d, testState(step, 0))
			}
			if got := walk(t, m, foreign); len(got) != len(files) {
				t.Errorf("in the foreign folder there are %v, want %d files", got, len(files))
			}
			save(t, d, testState(123, 0)) // which finds the name taken
			if c, err = d.FindLatest(t.Context()); err != nil || c.Step() != 123 {
				t.Fatalf("found %v, %v", c, err)
			}
			must(t, c.Close())
		})
	}
}

// TestTornSavesAreNotForeign: what a save or a removal of ours has left is known by its files' names, or by how its manifest begins.
func TestTornSavesAreNotForeign(t *testing.T) {
	t.Parallel()
	shard := manifest.Tag{Attempt: 1, Run: 7, Nonce: 9}.ShardName(0, 1)
	for name, test := range map[string]struct {
		files map[string]string
		state string
	}{
		"empty":                      {nil, StatePartial},
		"a shard on its way":         {map[string]string{shard + ".tmp": "", "notes.txt": ""}, StatePartial},
		"a shard":                    {map[string]string{shard: "x"}, StatePartial},
		"being removed":              {map[string]string{manifest.DeletingName: "x"}, StatePartial},
		"damaged manifest, shard":    {map[string]string{manifest.Name: "", shard: "x"}, StateBroken},
		"damaged manifest, no shard": {map[string]string{manifest.Name: "{\n  \"format\": \"ddpbatch checkpoint\",\n  \"vers"}, StateBroken},
	} {
		t.Run(name, func(t *testing.T) {
			m := vfstest.New(t)
			d := openDir(t, Options{FS: m})
			save(t, d, testState(1, 0))
			putFolder(t, m, d, 5, test.files)
			wantList(t, d, "1 committed, 5 "+test.state)
		})
	}
}

// TestForeignFolderAlone is none: a run that finds only that begins.
func TestForeignFolderAlone(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Run: "r", Attempt: 1})
	must(t, d.makeRoot())
	putFolder(t, m, d, 9, map[string]string{"MANIFEST.json": "{}"})
	_, err := d.FindLatest(context.Background())
	wantErr(t, "FindLatest", err, ErrNone)
}

func putFolder(t *testing.T, m *vfs.Mem, d *Dir, step int64, files map[string]string) string {
	t.Helper()
	path := d.stepPath(step)
	must(t, m.Mkdir(path))
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f, err := m.Create(filepath.Join(path, name))
		must(t, err)
		_, err = f.Write([]byte(files[name]))
		must(t, err)
		must(t, f.Close())
	}
	return path
}

func errOf(_ *Checkpoint, err error) error { return err }
