package data

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// stringOf returns symbols as text.
func stringOf[T int | float32](symbols []T) string {
	var b []byte
	for _, s := range symbols {
		b = append(b, byte(s))
	}
	return string(b)
}

func TestOpenText(t *testing.T) {
	set, err := OpenText(t.Context(), nil, writeFile(t, "text", []byte("abcdefgh\xff")), 3)
	if err != nil {
		t.Fatal(err)
	}
	if set.Spec() != (Spec{Inputs: 3, Classes: 256, Labels: 3, Symbols: 256}) {
		t.Errorf("%+v", set.Spec())
	}
	got := all(set) // a third row would need a tenth byte
	if got.Rows != 2 || stringOf(got.X) != "abcdef" || stringOf(got.Labels) != "bcdefg" {
		t.Errorf("%d rows %q with labels %q", got.Rows, stringOf(got.X), stringOf(got.Labels))
	}
	defer func() {
		if recover() == nil {
			t.Error("a row beyond the text does not panic")
		}
	}()
	set.Read(2, got.X, nil, got.Labels)
}

// For any text and context, the rows are the text from its first byte on, and the labels are the text from its second byte on. Less
// than a row is left out at the end.
func TestTextHoldsEveryByteOnce(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 2, 200).Draw(r, "text")
		width := rapid.IntRange(1, len(text)-1).Draw(r, "context")
		path := filepath.Join(dir, "text")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			r.Fatal(err)
		}
		set, err := OpenText(context.Background(), nil, path, width)
		if err != nil {
			r.Fatal(err)
		}
		b := all(set)
		n := len(b.X)
		if stringOf(b.X) != string(text[:n]) || stringOf(b.Labels) != string(text[1:n+1]) || len(text)-1-n >= width {
			r.Fatalf("%d rows of %d bytes: %q, %q", b.Rows, width, stringOf(b.X), stringOf(b.Labels))
		}
	})
}

// makeTree writes files to a new folder and returns its path. A name that ends in "@" becomes a symbolic link.
func makeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, strings.TrimSuffix(name, "@"))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		err := error(nil)
		if strings.HasSuffix(name, "@") {
			err = os.Symlink(text, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestOpenTextReadsATreeInOrder(t *testing.T) {
	root := makeTree(t, map[string]string{
		"b/2": "two", "b/1": "one", "b.txt": "three", "a": "zero", "empty": "",
		".git/config": "hidden", "b/.hidden": "hidden", "link@": "a", "folder@": "b",
	})
	// The folder b comes before b.txt, since names are sorted folder by folder. The link to a folder does not add a second copy.
	const want = "zero\x00one\x00two\x00three\x00\x00zero"
	link := filepath.Join(t.TempDir(), "root")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	for _, cache := range []*Cache{nil, {Dir: t.TempDir()}} {
		for _, path := range []string{root, link} {
			set, err := OpenText(t.Context(), cache, path, 1)
			if err != nil {
				t.Fatal(err)
			}
			if b := all(set); stringOf(b.X) != want[:len(want)-1] || stringOf(b.Labels) != want[1:] {
				t.Errorf("text %q, want %q without its last byte", stringOf(b.X), want)
			}
		}
	}
}

// A cache inside the tree is not part of the text, whatever it holds and whichever path leads to it.
func TestOpenTextLeavesOutTheCache(t *testing.T) {
	root := makeTree(t, map[string]string{"a": "one", "z": "two", "link@": "deep/cache", "deep/cache/left": "over"})
	table := CSVConfig{Path: writeFile(t, "table.csv", []byte("1,0\n"))}
	for _, dir := range []string{"deep/cache", "link", "deep/../deep/cache", "link/"} {
		cache := &Cache{Dir: filepath.Join(root, dir)}
		for range 2 {
			set, err := OpenText(t.Context(), cache, root, 6)
			if err != nil {
				t.Fatalf("cache %s: %v", dir, err)
			}
			if got := stringOf(all(set).X); set.Len() != 1 || got != "one\x00tw" {
				t.Errorf("cache %s: %d rows of %q", dir, set.Len(), got)
			}
			mustCSV(t, cache, table)
		}
	}
	_, err := OpenText(t.Context(), &Cache{Dir: root}, root, 6)
	if err == nil || !strings.Contains(err.Error(), root+" is also the folder for prepared data") {
		t.Errorf("error %v, want one about the cache", err)
	}
	blocked := &Cache{Dir: filepath.Join(root, "a", "cache")}
	if _, err := OpenText(t.Context(), blocked, root, 6); !errors.Is(err, syscall.ENOTDIR) ||
		!strings.Contains(err.Error(), "folder for prepared data") {
		t.Errorf("error %v, want one about the cache's place", err)
	}
}

func TestOpenTextRefusesBadPaths(t *testing.T) {
	short := writeFile(t, "short", []byte("abc"))
	for name, c := range map[string]struct {
		path    string
		context int
		want    string
	}{
		"shorter than a row": {short, 3, "short holds 3 bytes, but a row of context 3 takes 4"},
		"empty":              {writeFile(t, "none", nil), 1, "none holds 0 bytes"},
		"no context":         {short, 0, "context is 0 bytes"},
		"a huge context":     {short, maxContext + 1, "context is 1048577 bytes"},
		"not there":          {"/nowhere/text", 1, "/nowhere/text"},
		"an empty tree":      {makeTree(t, map[string]string{".x": "abc"}), 1, "holds 0 bytes"},
		"a broken link":      {makeTree(t, map[string]string{"x@": "nowhere"}), 1, "x is a broken link"},
		"a link to itself":   {makeTree(t, map[string]string{"x@": "x"}), 1, "x: too many levels of symbolic links"},
		"a device":           {"/dev/null", 1, "/dev/null is not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := OpenText(t.Context(), nil, c.path, c.context); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// The text begins with "First Citizen", as the file of Coriolanus does.
func TestRealTextBeginsAsPrinted(t *testing.T) {
	set, err := OpenText(t.Context(), nil, filepath.Join("testdata", "coriolanus.txt"), 13)
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	b.Fill(set, []int{0})
	if stringOf(b.X) != "First Citizen" || !slices.Equal(b.Labels[10:], []int{'e', 'n', ':'}) || set.Len() != (39908-1)/13 {
		t.Errorf("%d rows from %q, %v", set.Len(), stringOf(b.X), b.Labels)
	}
}

// A tree that holds a sparse file is refused at the file's hole, before the rest is read into memory.
func TestTreeWithAHoleIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := holeOf(t, dir, "b", strings.Repeat("text", betweenLooks/2), 8<<20)
	listed, err := listTree(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := []byte(strings.Repeat("x", 8<<20))
	err = readExactly(t.Context(), path, b)
	if err == nil || !strings.Contains(err.Error(), "b holds 65536 zero bytes from byte 2097152 on") {
		t.Errorf("error %v, want one about the hole", err)
	}
	if b[3*betweenLooks] != 'x' {
		t.Error("the file was read on after the hole")
	}
	if _, err := listed.join(t.Context()); err == nil {
		t.Error("the tree is read")
	}
	if _, err := OpenText(t.Context(), nil, dir, 8); err == nil || !strings.Contains(err.Error(), "read text: "+path) {
		t.Errorf("error %v, want one that names the file", err)
	}
	// Some zero bytes may be part of a text.
	few := makeTree(t, map[string]string{"a": "a" + strings.Repeat("\x00", treeHole) + "b", "c": strings.Repeat("\x00", treeHole-1)})
	if _, err := OpenText(t.Context(), nil, few, 8); err != nil {
		t.Errorf("a text with some zero bytes: %v", err)
	}
}
