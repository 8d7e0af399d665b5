package data

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	textSymbols = 256 // bytes

	// maxContext bounds the bytes of a row. Attention's memory grows with its square.
	maxContext = 1 << 20
)

// textRows are windows of bytes. Row i is the context bytes from i x context on, and its labels are the bytes that follow
// each of them.
type textRows struct {
	bytes   []byte
	context int
	file    *mapping // the mapping that holds bytes, if any
}

// OpenText opens a text for predicting the next byte: the file at path, or all files of the tree at path. Row i is the
// bytes [i x context, i x context + context) as symbols of 256, and its labels are the bytes one position further on. Bytes that do not
// fill a row at the end are left out.
//
// A file is mapped. The files of a tree are joined, once a node if there is a cache: those of each folder sorted by
// name, including folders, with a zero byte between two files, which no text contains. Names that begin with a dot are
// left out, and so is the cache's own folder. Links to files are followed, links to folders are not, and a broken
// link is an error, because text would be missing.
func OpenText(ctx context.Context, cache *Cache, path string, context int) (_ Dataset, err error) {
	defer reading(&err, "text")
	if context < 1 || context > maxContext {
		return nil, fmt.Errorf("the context is %d bytes, want 1 to %d", context, maxContext)
	}
	t, err := openBytes(ctx, cache, path)
	if err != nil {
		return nil, err
	}
	t.context = context
	if t.Len() < 1 {
		return nil, fmt.Errorf("%s holds %d bytes, but a row of context %d takes %d", path, len(t.bytes), context, context+1)
	}
	return t, nil
}

func openBytes(ctx context.Context, cache *Cache, path string) (*textRows, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openTree(ctx, cache, path)
	}
	m, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	return &textRows{bytes: m.bytes, file: m}, nil
}

func (t *textRows) Len() int { return (len(t.bytes) - 1) / t.context }

func (t *textRows) Spec() Spec { return TextSpec(t.context) }

// TextSpec returns the spec of text in rows of context symbols.
func TextSpec(context int) Spec {
	return Spec{Inputs: context, Classes: textSymbols, Labels: context, Symbols: textSymbols}
}

func (t *textRows) Read(i int, x, _ []float32, labels []int) {
	if i < 0 || i >= t.Len() {
		panic(badRow)
	}
	row := t.bytes[i*t.context:][:t.context+1]
	for j, b := range row[:t.context] {
		x[j] = float32(b)
	}
	for j, b := range row[1:] {
		labels[j] = int(b)
	}
	runtime.KeepAlive(t)
}

func (t *textRows) hash(h *stoppableHash, first, end int) {
	h.Write(t.bytes[first*t.context : end*t.context+1])
	runtime.KeepAlive(t)
}

const (
	// maxTree bounds a tree of text, which is joined in memory: 16 GiB.
	maxTree = 16 << 30

	// maxTreeFiles bounds the list of its files.
	maxTreeFiles = 1 << 22

	// treeHole is the length of a block of zero bytes, from a multiple of the length on, that is not text: the file is not complete, or
	// has a size but takes no room on disk.
	treeHole = 64 << 10
)

// textTree holds the files of a text, in order.
type textTree struct {
	root  string
	paths []string
	sizes []int64
	bytes int64 // of the files, including the bytes between them
	from  source
}

// openTree returns the files of the tree at root as one text.
func openTree(ctx context.Context, cache *Cache, root string) (*textRows, error) {
	var found *textTree
	look := func() (_ source, err error) {
		skip, err := cache.folder()
		if err != nil {
			return source{}, err
		}
		if found, err = listTree(root, skip); err != nil {
			return source{}, err
		}
		return found.from, nil
	}
	p, err := cache.load(ctx, look, func() (*prepared, error) {
		joined, err := found.join(ctx)
		if err != nil {
			return nil, err
		}
		return &prepared{Arrays: []array{{kindBytes, []int{len(joined)}, joined}}}, nil
	})
	if err != nil {
		return nil, err
	}
	if len(p.Arrays) != 1 || p.Arrays[0].kind != kindBytes {
		return nil, errStale
	}
	return &textRows{bytes: p.Arrays[0].bytes, file: p.file}, nil
}

// listTree lists all files below root, except for those in the folder skip, if that is not nil. WalkDir visits each
// folder in the order of names.
func listTree(root string, skip os.FileInfo) (*textTree, error) {
	// WalkDir would not follow a link as the root.
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	t := &textTree{root: root, from: source{Path: readable(root), Settings: "text"}}
	listing := sha256.New()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != root && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := os.Stat(path) // of the target of a link
		if errors.Is(err, fs.ErrNotExist) && d.Type()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a broken link: remove it, or restore what it leads to", path)
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			return t.enter(path, os.SameFile(info, skip))
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		changed, inode := inodeOf(info)
		fmt.Fprintf(listing, "%q %d %d %d %d\n", path, info.Size(), info.ModTime().UnixNano(), changed, inode)
		return t.add(path, info)
	})
	if err != nil {
		return nil, err
	}
	t.from.Files = fmt.Sprintf("%x", listing.Sum(nil))
	return t, nil
}

// enter returns what WalkDir should do with the folder at path; cache says that it is the cache's own.
func (t *textTree) enter(path string, cache bool) error {
	if !cache {
		return nil
	}
	if path == t.root {
		return fmt.Errorf("%s is also the folder for prepared data: choose another for one of them", path)
	}
	return fs.SkipDir
}

// add adds the file at path.
func (t *textTree) add(path string, info fs.FileInfo) error {
	if len(t.paths) > 0 {
		t.bytes++ // the zero byte before it
	}
	t.paths = append(t.paths, path)
	t.sizes = append(t.sizes, info.Size())
	t.from.Size += info.Size()
	changed, _ := inodeOf(info)
	t.from.Modified = max(t.from.Modified, info.ModTime().UnixNano())
	t.from.Changed = max(t.from.Changed, changed)
	if info.Size() > maxTree || t.bytes+info.Size() > maxTree || len(t.paths) > maxTreeFiles {
		return fmt.Errorf("%s holds more than %d GiB or %d files: put the text into one file, which may have any size",
			t.root, maxTree>>30, maxTreeFiles)
	}
	t.bytes += info.Size()
	return nil
}

// join reads all files into one slice, with a zero byte between two.
func (t *textTree) join(ctx context.Context) ([]byte, error) {
	joined := make([]byte, t.bytes)
	rest := joined
	for i, path := range t.paths {
		if i > 0 {
			rest = rest[1:]
		}
		if err := readExactly(ctx, path, rest[:t.sizes[i]]); err != nil {
			return nil, err
		}
		rest = rest[t.sizes[i]:]
	}
	return joined, nil
}

// readExactly fills b with the file at path, which must have that size. It reads in parts, so that it stops at a hole before it has used
// much memory.
func readExactly(ctx context.Context, path string, b []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, info, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info.Size() != int64(len(b)) {
		return fmt.Errorf("%s changed while it was read: start again when it is complete", path)
	}
	for at := 0; at < len(b); {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := b[at:min(at+betweenLooks, len(b))]
		if _, err := io.ReadFull(f, part); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		for hole := 0; hole+treeHole <= len(part); hole += treeHole {
			if part[hole] == 0 && len(bytes.TrimLeft(part[hole:hole+treeHole], "\x00")) == 0 {
				return fmt.Errorf("%s holds %d zero bytes from byte %d on: it is not text, or not complete; copy it again, or remove it",
					path, treeHole, at+hole)
			}
		}
		at += len(part)
	}
	return nil
}
