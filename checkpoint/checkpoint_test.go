package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
)

// A folder that has only the name in common with a checkpoint's folder is not a torn save. The package skips it, says so in the log, and
// leaves it as it is.
func TestForeignFoldersArePassedOver(t *testing.T) {
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
			wantErr(t, "FindFolder", errOf(d.FindFolder(t.Context(), manifest.StepFolder(123))), ErrNone)
			for step := int64(2); step < 7; step++ {
				save(t, d, testState(step, 0))
			}
			if got := walk(t, m, foreign); len(got) != len(files) {
				t.Errorf("in the foreign folder there are %v, want %d files", got, len(files))
			}
			save(t, d, testState(123, 0)) // the name is already in use
			if c, err = d.FindLatest(t.Context()); err != nil || c.Step() != 123 {
				t.Fatalf("found %v, %v", c, err)
			}
			must(t, c.Close())
		})
	}
}

// The package recognizes what its own saves and removals have left by the names of the files, or by the beginning of the manifest.
func TestTornSavesAreNotForeign(t *testing.T) {
	t.Parallel()
	shard := manifest.Tag{Attempt: 1, Run: 7, Nonce: 9}.ShardName(0, 1)
	for name, test := range map[string]struct {
		files map[string]string
		state string
	}{
		"empty":                   {nil, StatePartial},
		"a shard on its way":      {map[string]string{shard + ".tmp": "", "notes.txt": ""}, StatePartial},
		"a shard":                 {map[string]string{shard: "x"}, StatePartial},
		"being removed":           {map[string]string{manifest.DeletingName: "x"}, StatePartial},
		"damaged manifest, shard": {map[string]string{manifest.Name: "", shard: "x"}, StateBroken},
		"damaged manifest, no shard": {map[string]string{manifest.Name: "{\n  \"format\": \"ddpbatch checkpoint\",\n  \"vers"},
			StateBroken},
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

// A run that finds only a foreign folder begins anew.
func TestForeignFolderIsNotACheckpoint(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Run: "r", Attempt: 1})
	must(t, d.makeRoot())
	putFolder(t, m, d, 9, map[string]string{"MANIFEST.json": "{}"})
	_, err := d.FindLatest(context.Background())
	wantErr(t, "FindLatest", err, ErrNone)
}

func putFolder(t *testing.T, m *vfstest.Mem, d *Dir, step int64, files map[string]string) string {
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

// sealed adds the right checksum to the body of a manifest.
func sealed(body string) []byte {
	sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, "%s,\n  \"crc32c\": \"%08x\"\n}\n", body, sum)
}

// The package does not read the manifest of a newer program, report it as corrupt, skip it or remove it.
func TestNewerFormatIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Keep: Policy{Last: 2}})
	save(t, d, testState(1, 0))
	save(t, d, testState(2, 0))
	path := d.stepPath(2) + "/" + manifest.Name
	body, _, _ := strings.Cut(string(vfstest.Read(t, m, path)), ",\n  \"crc32c\"")
	body = strings.Replace(body, `"version": 2`, `"version": 12`, 1)
	body = strings.Replace(body, `"world": 4`, `"world": ["not what version 2 means"]`, 1)
	vfstest.Put(t, m, path, sealed(body))

	_, _, err := d.Latest(t.Context())
	wantErr(t, "Latest", err, ErrFormatTooNew)
	if errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "version 12") || !strings.Contains(err.Error(), "up to 2") {
		t.Errorf("error %v does not say the versions", err)
	}
	wantErr(t, "Verify", VerifyStep(t.Context(), d, 2), ErrFormatTooNew)
	wantList(t, d, "1 committed, 2 newer")
	for step := int64(3); step < 6; step++ {
		save(t, d, testState(step, 0))
	}
	wantList(t, d, "1 committed, 2 newer, 4 committed, 5 committed") // step 1 may be the base of step 2
}

// The same holds for a newer shard whose manifest is of this version.
func TestNewerShardIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m})
	save(t, d, testState(1, 0))
	path := find(t, m, d.stepPath(1), "shard-")
	data := vfstest.Read(t, m, path)
	data[8] = 3
	binary.LittleEndian.PutUint32(data[60:], crc32.Checksum(data[:60], crc32.MakeTable(crc32.Castagnoli)))
	vfstest.Put(t, m, path, data)
	wantErr(t, "Verify", VerifyStep(t.Context(), d, 1), ErrFormatTooNew)
}

// A pipe or a folder with the name of a manifest or a shard is damage, and no read blocks on it.
func TestPipeInPlaceOfAFileIsDamage(t *testing.T) {
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
				err = errOf(tool.Find(t.Context(), 2))
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), found[0]+": not a regular file") {
					t.Errorf("Find: %v", err)
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
