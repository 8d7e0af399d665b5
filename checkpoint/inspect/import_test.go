package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/text"
)

// An import holds only a small part of the file in memory, however large the file is. No other test may run at the same time.
func TestImportHoldsLittleInMemory(t *testing.T) {
	const size, limit = 160 << 20, 48 << 20
	dir := t.TempDir()
	header := fmt.Sprintf(`{"a":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]},"b":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}`,
		size/8, size/2, size/2, size/2, size)
	head := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	file := filepath.Join(dir, "a.safetensors")
	if err := os.WriteFile(file, head, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, int64(len(head))+size); err != nil { // the zeros are sparse and do not take space
		t.Fatal(err)
	}
	f := Finder{From: text.Dir(dir), Log: slog.New(slog.DiscardHandler)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := f.Import(t.Context(), file, "imported", ModelPrefix, 0)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > limit {
		t.Errorf("%d bytes allocated to import %d, want at most %d", got, int64(size), int64(limit))
	}
	ckpts, err := Folder{Finder: f, Path: filepath.Join(dir, "imported")}.Open()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ckpts.Find(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Verify(t.Context()), c.Close()); err != nil {
		t.Error(err)
	}
}

// If a file is overwritten in place during an import, no checkpoint is made. If it is replaced, the import reads the old file.
func TestImportRefusesAFileThatChanges(t *testing.T) {
	t.Parallel()
	const header = `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`
	content := func(data string) []byte {
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(t *testing.T, path, data string, modified int64) {
		t.Helper()
		must(t, os.WriteFile(path, content(data), 0o644))
		must(t, os.Chtimes(path, time.Time{}, time.Unix(modified, 0)))
	}
	for _, row := range []struct {
		name    string
		between func(t *testing.T, file string)
		fails   bool
	}{
		{"overwritten", func(t *testing.T, file string) { write(t, file, "new!", 2) }, true},
		{"longer", func(t *testing.T, file string) { write(t, file, "old.more", 1) }, true},
		{"replaced", func(t *testing.T, file string) {
			write(t, file+".new", "new!", 2)
			must(t, os.Rename(file+".new", file))
		}, false},
		{"let alone", func(*testing.T, string) {}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			finder := Finder{From: text.Dir(dir), Log: slog.New(slog.DiscardHandler)}
			file, to := filepath.Join(dir, "a.safetensors"), Folder{Finder: finder, Path: filepath.Join(dir, "imported")}
			write(t, file, "old.", 1)
			f, err := finder.openImport(file)
			must(t, err)
			defer f.Close()
			state, err := importState(f, file, "", 0)
			must(t, err)
			row.between(t, file)
			_, err = to.saveImport(t.Context(), state)
			if !row.fails {
				must(t, err)
				ckpts, err := to.Open()
				must(t, err)
				got, _, err := ckpts.Latest(t.Context())
				must(t, err)
				if data := string(got.Tensors[0].Data); data != "old." {
					t.Errorf("imported %q, want what the file held when it was opened", data)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "changed while it was read") {
				t.Errorf("import of a changed file: %v", err)
			}
			if _, err := os.Stat(to.Path); !os.IsNotExist(err) {
				t.Errorf("the folder made for it: %v, want it gone", err)
			}
		})
	}
}
