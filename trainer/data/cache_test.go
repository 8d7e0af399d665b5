package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// entry returns the path of the only file of prepared data in a cache.
func entry(t *testing.T, c *Cache) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(c.Dir, "*.data"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the cache holds %v, error %v; want one file", found, err)
	}
	return found[0]
}

// place returns the cacheFile of a name in the cache's folder, which must exist.
func place(t *testing.T, c *Cache, name string) cacheFile {
	t.Helper()
	in, err := vfs.OpenFolder(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return cacheFile{in, name}
}

func mustCSV(t *testing.T, c *Cache, cfg CSVConfig) Dataset {
	t.Helper()
	set, err := LoadCSV(t.Context(), c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Every kind of data is the same without a cache, when a cache prepares it, and when a cache finds it prepared.
func TestCacheChangesNothing(t *testing.T) {
	table := writeFile(t, "table.csv", []byte("1,2,1\n3,4,0\n"))
	images, labels := writeMNIST(t, gzipped(t, idxBytes([]uint32{2, 1, 2}, 1, 2, 3, 4)), gzipped(t, idxBytes([]uint32{2}, 7, 8)))
	folder := makeTree(t, map[string]string{"a": "some", "b": "text"})
	for name, load := range map[string]func(c *Cache) (Dataset, error){
		"classes": func(c *Cache) (Dataset, error) { return LoadCSV(t.Context(), c, CSVConfig{Path: table}) },
		"outputs": func(c *Cache) (Dataset, error) {
			return LoadCSV(t.Context(), c, CSVConfig{Path: table, Regression: true})
		},
		"gzip":         func(c *Cache) (Dataset, error) { return LoadMNIST(t.Context(), c, images, labels) },
		"tree":         func(c *Cache) (Dataset, error) { return OpenText(t.Context(), c, folder, 2) },
		"tree, longer": func(c *Cache) (Dataset, error) { return OpenText(t.Context(), c, folder, 3) },
	} {
		cache := &Cache{Dir: filepath.Join(t.TempDir(), "new", "folder")}
		want, err := load(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range []string{"prepared", "found"} {
			got, err := load(cache)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, state, err)
			}
			if got.Spec() != want.Spec() || digestOf(got) != digestOf(want) {
				t.Errorf("%s, %s: %+v with %+v", name, state, got.Spec(), all(got))
			}
		}
	}
}

// Data that a cache holds is not prepared again, even by another Cache of the same folder.
func TestCachePreparesOnce(t *testing.T) {
	dir, made := t.TempDir(), 0
	look := func() (source, error) { return testSource, nil }
	for range 3 {
		p, err := (&Cache{Dir: dir}).load(t.Context(), look, func() (*prepared, error) { made++; return sample(), nil })
		if err != nil || p.Classes != sample().Classes {
			t.Fatalf("%+v, error %v", p, err)
		}
	}
	if made != 1 {
		t.Errorf("prepared %d times", made)
	}
}

// A damaged file of prepared data is noticed and written again, and the data is right.
func TestCacheIsRepaired(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	cfg := CSVConfig{Path: writeFile(t, "table.csv", []byte("1,0\n2,1\n"))}
	want := digestOf(mustCSV(t, cache, cfg))
	path := entry(t, cache)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{
		"empty":           {},
		"cut":             whole[:len(whole)-1],
		"longer":          append(bytes.Clone(whole), 0),
		"another version": append([]byte(preparedMagic+"\x02"), whole[9:]...),
		"a flipped bit":   append(bytes.Clone(whole[:len(whole)-1]), whole[len(whole)-1]^1),
	} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if digestOf(mustCSV(t, cache, cfg)) != want {
			t.Errorf("%s: other data", name)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, whole) {
			t.Errorf("%s: the file was not mended, error %v", name, err)
		}
	}
}

func TestCacheReturnsTheSourcesError(t *testing.T) {
	bad := CSVConfig{Path: writeFile(t, "table.csv", []byte("1,0\n2,x\n"))}
	cache := &Cache{Dir: t.TempDir()}
	for range 2 { // if the first load kept the lock, the second would wait
		if _, err := LoadCSV(t.Context(), cache, bad); err == nil || !strings.Contains(err.Error(), "table.csv:2:3") {
			t.Errorf("error %v, want that of the file", err)
		}
	}
	blocked := &Cache{Dir: writeFile(t, "file", nil)}
	if _, err := LoadCSV(t.Context(), blocked, bad); err == nil || !strings.Contains(err.Error(), "folder for prepared data") {
		t.Errorf("error %v, want one about the folder", err)
	}
	looks := int64(0)
	look := func() (source, error) { looks++; return source{Path: "moving", Size: looks}, nil }
	_, err := cache.load(t.Context(), look, func() (*prepared, error) { return &prepared{}, nil })
	if err == nil || !strings.Contains(err.Error(), "moving changed while it was read") {
		t.Errorf("error %v, want one about the source that changes", err)
	}
	if _, err := LoadCSV(t.Context(), cache, CSVConfig{Path: "/nowhere/table"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one about the file", err)
	}
}

// If the prepared data cannot be written, the error says what was being done, and no temporary file is left.
func TestCacheSaysThatItCannotBeWritten(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	cfg := CSVConfig{Path: writeFile(t, "table.csv", []byte("1,0\n"))}
	mustCSV(t, cache, cfg)
	path := entry(t, cache)
	err := os.Remove(path)
	if err == nil {
		err = os.MkdirAll(filepath.Join(path, "in the way"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCSV(t.Context(), cache, cfg); err == nil || !strings.Contains(err.Error(), path+" is not a regular file") {
		t.Errorf("error %v, want one about what is in the way", err)
	}
	err = replaceFile(place(t, cache, filepath.Base(path)), func(w io.Writer) error { return encodePrepared(w, source{}, &prepared{}) })
	if err == nil || !strings.Contains(err.Error(), "rename") {
		t.Errorf("error %v, want one of the rename", err)
	}
	if left, err := filepath.Glob(filepath.Join(cache.Dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("%v are left over, error %v", left, err)
	}
}

// A temporary file of a killed process is removed when the data is prepared again.
func TestCacheClearsWhatIsLeftOver(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	cfg := CSVConfig{Path: writeFile(t, "table.csv", []byte("1,0\n"))}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	mustCSV(t, cache, cfg)
	path := entry(t, cache)
	left := filepath.Join(cache.Dir, fmt.Sprintf(".%s.%s.tmp", filepath.Base(path), host))
	if err := os.Rename(path, left); err != nil {
		t.Fatal(err)
	}
	mustCSV(t, cache, cfg)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there, error %v", left, err)
	}
}

// A source's name may hold any bytes, also invalid UTF-8.
func TestCacheTakesFilesWithAnyName(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	long := strings.Repeat("x", 150) + strings.Repeat("\u00e4", 50) // 250 of the 255 bytes that a name may have
	for i, name := range []string{"\xff.csv", "\xfe.csv", "<&>\u2028.csv", "a b\n.csv", long, long + "x"} {
		cfg := CSVConfig{Path: writeFile(t, name, fmt.Appendf(nil, "%d,0\n", i))}
		for range 2 {
			if b := all(mustCSV(t, cache, cfg)); b.X[0] != float32(i) {
				t.Errorf("%q: inputs %v, want %d", name, b.X, i)
			}
		}
	}
}

// A rank finds whole data even if other ranks of its node are killed while they prepare it.
func TestCacheSurvivesKills(t *testing.T) {
	root := t.TempDir()
	file := bytes.Repeat([]byte("0123456789abcde\n"), 1<<19) // 8 MiB, which takes a moment to write
	if err := os.WriteFile(filepath.Join(root, "text"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	whole, err := OpenText(t.Context(), nil, root, 64)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x", digestOf(whole))
	for range 3 {
		dir := t.TempDir()
		victims := []*helper{startHelper(t, "tree", dir, root), startHelper(t, "tree", dir, root)}
		for _, v := range victims {
			testkit.Eventually(t, "a rank begins to write, or has written", func() bool {
				found, err := filepath.Glob(filepath.Join(dir, ".*.tmp"))
				done, _ := filepath.Glob(filepath.Join(dir, "*.data"))
				return err == nil && len(found)+len(done) > 0
			})
			v.kill()
		}
		if got := startHelper(t, "tree", dir, root).line(); got != want {
			t.Fatalf("digest %s, want %s", got, want)
		}
		if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
			t.Errorf("%v are left over, error %v", left, err)
		}
	}
}

// rewrite overwrites the file at path with text and restores its modification time.
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

// replaceAt replaces the file at path by a new one with the same modification time.
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

// A file that was changed is read again, whether it was overwritten or replaced, and however soon after the last load.
// Its size and modification time would show none of these changes.
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
		entry(t, cache) // each file of prepared data has replaced the one before
	}
}

// A gzip file that was replaced is read again, too. Its bytes are mapped before the cache is asked.
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

func TestCacheDistinguishesSettings(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	cfg := CSVConfig{Path: writeFile(t, "table.csv", []byte("5,0\n6,1\n"))}
	mustCSV(t, cache, cfg)
	cfg.Targets = []string{"0"}
	if b := all(mustCSV(t, cache, cfg)); b.Labels[1] != 6 {
		t.Errorf("labels %v: other settings were served from the cache", b.Labels)
	}
}

// A change of one file of a tree is noticed, even if the tree's size and newest modification time stay the same.
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

func TestSourceWaitsForTheClock(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	now := time.Now()
	for name, c := range map[string]struct {
		changed time.Time
		waits   bool
	}{
		"long ago":                  {now.Add(-time.Hour), false},
		"just now":                  {now.Add(time.Minute), true}, // in the future, since time passes before the call
		"by a clock that is ahead":  {now.Add(time.Hour), true},
		"one grain ago, and longer": {now.Add(-clockGrain), false},
	} {
		err := source{Changed: c.changed.UnixNano()}.waitForClock(done)
		if waits := errors.Is(err, context.Canceled); waits != c.waits {
			t.Errorf("%s: error %v, want one: %v", name, err, c.waits)
		}
	}
	s := source{Changed: time.Now().UnixNano()}
	if err := s.waitForClock(t.Context()); err != nil || time.Since(time.Unix(0, s.Changed)) < clockGrain {
		t.Errorf("after %v: error %v", time.Since(time.Unix(0, s.Changed)), err)
	}
}
