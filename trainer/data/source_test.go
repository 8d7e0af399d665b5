package data

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// rewrite gives the file at path another content and its old time.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err == nil {
		err = os.Chtimes(path, info.ModTime(), info.ModTime())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// replaceAt puts another file of the same time in the place of the one at path.
func replaceAt(t *testing.T, path, text string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.WriteFile(path+".new", []byte(text), 0o600)
	}
	if err == nil {
		err = os.Chtimes(path+".new", info.ModTime(), info.ModTime())
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// However a file is changed, by whatever tool, and however soon after it was read, it is read again. Size and time of
// content alone would show none of these.
func TestCacheSeesEveryChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path, text string){
		"in place": rewrite, "by another file": replaceAt,
	} {
		cache := &Cache{Dir: t.TempDir()}
		cfg := CSVConfig{Path: writeFile(t, "table.csv", []byte("0,0\n"))}
		for want, text := range []string{"0,0\n", "1,0\n", "2,0\n", "3,0\n"} {
			change(t, cfg.Path, text)
			if got := all(mustCSV(t, cache, cfg)).X[0]; got != float32(want) {
				t.Errorf("%s: input %v, want %d", name, got, want)
			}
		}
		entry(t, cache) // each in place of the one before
	}
}

// So do two gzip files, whose bytes are mapped before the cache is asked.
func TestCacheSeesAChangedGzip(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	path := writeFile(t, "array.gz", gzipped(t, idxBytes([]uint32{1}, 1)))
	for want := range byte(3) {
		replaceAt(t, path, string(gzipped(t, idxBytes([]uint32{1}, want))))
		x, err := openIDX(t.Context(), cache, path)
		if err != nil || x.data[0] != want {
			t.Errorf("%+v, error %v; want %d", x, err, want)
		}
	}
}

func TestCacheTellsSettingsApart(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	cfg := CSVConfig{Path: writeFile(t, "table.csv", []byte("5,0\n6,1\n"))}
	mustCSV(t, cache, cfg)
	cfg.Targets = []string{"0"}
	if b := all(mustCSV(t, cache, cfg)); b.Labels[1] != 6 {
		t.Errorf("labels %v: other settings were served from the cache", b.Labels)
	}
}

// One file of a tree that changes is seen, even where the tree's size and newest time stay.
func TestCacheSeesEveryFileOfATree(t *testing.T) {
	cache, root := &Cache{Dir: t.TempDir()}, makeTree(t, map[string]string{"a": "some", "b": "text"})
	open := func() string {
		set, err := OpenText(t.Context(), cache, root, 8)
		if err != nil {
			t.Fatal(err)
		}
		return stringOf(all(set).X)
	}
	if got := open(); got != "some\x00tex" {
		t.Fatalf("%q", got)
	}
	for _, c := range []struct {
		change  func(t *testing.T, path, text string)
		a, b    string
		content string
	}{
		{rewrite, "som", "etext", "som\x00etex"},
		{rewrite, "SOM", "etext", "SOM\x00etex"},
		{replaceAt, "som", "ETEXT", "som\x00ETEX"},
	} {
		c.change(t, filepath.Join(root, "a"), c.a)
		c.change(t, filepath.Join(root, "b"), c.b)
		if got := open(); got != c.content {
			t.Errorf("%q, want %q", got, c.content)
		}
	}
}

func TestSourceSettles(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	now := time.Now()
	for name, c := range map[string]struct {
		changed time.Time
		waits   bool
	}{
		"long ago":                  {now.Add(-time.Hour), false},
		"just now":                  {now.Add(time.Minute), true}, // as time goes on until it is asked
		"by a clock that is ahead":  {now.Add(time.Hour), true},
		"one grain ago, and longer": {now.Add(-clockGrain), false},
	} {
		err := source{Changed: c.changed.UnixNano()}.settle(done)
		if waits := errors.Is(err, context.Canceled); waits != c.waits {
			t.Errorf("%s: error %v, want one: %v", name, err, c.waits)
		}
	}
	s := source{Changed: time.Now().UnixNano()}
	if err := s.settle(t.Context()); err != nil || time.Since(time.Unix(0, s.Changed)) < clockGrain {
		t.Errorf("after %v: error %v", time.Since(time.Unix(0, s.Changed)), err)
	}
}
