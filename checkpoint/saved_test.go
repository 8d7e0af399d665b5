package checkpoint

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// LastSaved returns the time of the newest commit or, if the files are a program's own, that of the newest entry of ListForeign.
func TestLastSaved(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 11, 27, hour, 0, 0, 0, time.UTC) }
	for name, test := range map[string]struct {
		files   map[string]int // hour of the last change by path; a path that ends with a slash is a folder
		want    int            // 0 means that nothing was saved
		foreign string
	}{
		"no folder":   {},
		"nothing yet": {files: map[string]int{"attempt-3.json.tmp": 9, ".nfs123": 10}},
		"commits":     {files: map[string]int{"step-000000000010/MANIFEST.json": 3, "step-000000000020/MANIFEST.json": 5}, want: 5},
		"went back": {files: map[string]int{"step-000000000010.2-0badcafe/MANIFEST.json": 7, "step-000000000020/MANIFEST.json": 5},
			want: 7},
		"one is being made": {files: map[string]int{"step-000000000010/MANIFEST.json": 3, "step-000000000020/shard-00000-of-00001.x": 5},
			want: 3},
		"only a part":   {files: map[string]int{"step-000000000020/shard-00000-of-00001.x": 5, "log": 6}},
		"only a record": {files: map[string]int{"attempt-000000001-0badcafe.json": 6}},
		"set aside": {files: map[string]int{"step-000000000010/MANIFEST.json": 3, "step-000000000020.broken/MANIFEST.json": 5},
			want: 3},
		"a program's own": {files: map[string]int{"last.pt": 4, "best.pt": 2, "next.pt.tmp": 8}, want: 4, foreign: "last.pt best.pt"},
		"folders":         {files: map[string]int{"step-5/": 4, "step-10/": 6, "a": 4}, want: 6, foreign: "step-10 a step-5"},
	} {
		folder := filepath.Join(t.TempDir(), "checkpoints")
		for file, hour := range test.files {
			path := filepath.Join(folder, file)
			made := filepath.Dir(path)
			if file[len(file)-1] == '/' {
				made = path
			}
			if err := os.MkdirAll(made, 0o700); err != nil {
				t.Fatal(err)
			}
			if made != path {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chtimes(path, at(hour), at(hour)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := LastSaved(folder)
		if err != nil || test.want == 0 && !got.IsZero() || test.want > 0 && !got.Equal(at(test.want)) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, at(test.want))
		}
		list, err := ListForeign(folder)
		var names []string
		for _, f := range list {
			names = append(names, f.Name)
		}
		if foreign := strings.Join(names, " "); err != nil || foreign != test.foreign {
			t.Errorf("%s: a program has saved %q, %v; want %q", name, foreign, err, test.foreign)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LastSaved(file); err == nil {
		t.Error("a file was taken for a folder")
	}
	if list, err := ListForeign(file); err == nil {
		t.Errorf("a file was taken for a folder of %+v", list)
	}
}

// ListForeign does not follow links, and only files have a size.
func TestListForeignHasKinds(t *testing.T) {
	folder := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(folder, "a"), []byte("12345"), 0o600), os.Mkdir(filepath.Join(folder, "b"), 0o700),
		os.Symlink("a", filepath.Join(folder, "c")), os.Symlink("gone", filepath.Join(folder, "d")),
	); err != nil {
		t.Fatal(err)
	}
	list, err := ListForeign(folder)
	kinds := map[string]Foreign{}
	for _, f := range list {
		f.Changed = time.Time{}
		kinds[f.Name] = f
	}
	want := map[string]Foreign{
		"a": {Name: "a", Kind: KindFile, Bytes: 5}, "b": {Name: "b", Kind: KindFolder},
		"c": {Name: "c", Kind: KindOther}, "d": {Name: "d", Kind: KindOther},
	}
	if err != nil || !maps.Equal(kinds, want) {
		t.Errorf("%+v, %v; want %+v", kinds, err, want)
	}
}
