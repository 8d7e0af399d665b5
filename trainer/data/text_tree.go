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
	"strings"
)

const (
	// maxTree bounds a tree of text, which is put together in memory: 16 GiB.
	maxTree = 16 << 30

	// maxTreeFiles bounds the list of its files.
	maxTreeFiles = 1 << 22

	// treeHole is how many zero bytes, from a multiple of that on, are no text: so many are a file that is not complete, or
	// one that has a size and takes no room on disk.
	treeHole = 64 << 10
)

// tree is the files of a text, in order.
type tree struct {
	root  string
	paths []string
	sizes []int64
	bytes int64 // of the files with what is between them
	from  source
}

// openTree returns the files of the tree at root as one text.
func openTree(ctx context.Context, cache *Cache, root string) (*text, error) {
	var found *tree
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
	return &text{bytes: p.Arrays[0].bytes, file: p.file}, nil
}

// listTree looks at all files below root, without those in the folder skip, if it is not nil. WalkDir goes through each
// folder in the order of names.
func listTree(root string, skip os.FileInfo) (*tree, error) {
	// A link as the root would not be followed.
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	t := &tree{root: root, from: source{Path: readable(root), Settings: "text"}}
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
		info, err := os.Stat(path) // of what a link leads to
		if errors.Is(err, fs.ErrNotExist) && d.Type()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link to nothing: remove it, or mend what it leads to", path)
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

// enter tells WalkDir what to do with the folder at path, which may be that of the cache.
func (t *tree) enter(path string, cache bool) error {
	if !cache {
		return nil
	}
	if path == t.root {
		return fmt.Errorf("%s is the folder for prepared data, too: choose another for one of them", path)
	}
	return fs.SkipDir
}

// add takes the file at path in.
func (t *tree) add(path string, info fs.FileInfo) error {
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

// join reads all files into one piece, with a zero byte between two.
func (t *tree) join(ctx context.Context) ([]byte, error) {
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

// readExactly fills b with the file at path, which must have that size. It reads in parts, so that a hole costs no more memory than one.
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
				return fmt.Errorf("%s holds %d zero bytes from byte %d on: it is no text, or not complete; copy it again, or take it out",
					path, treeHole, at+hole)
			}
		}
		at += len(part)
	}
	return nil
}
