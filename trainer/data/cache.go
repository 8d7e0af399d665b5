package data

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ddpbatch/internal/vfs"
)

// Cache is a folder of prepared data: tables parsed from CSV, unpacked gzip, a tree of text in one
// piece. The first rank that needs one prepares it while the others wait, and all map it, so that the ranks of a node
// hold it in memory once. A nil *Cache prepares in memory each time.
//
// A file of the cache serves as long as its source has the same path, size, times (of content and inode) and inode
// number, and is read with the same settings; a damaged one is made anew. A source whose data is at fault fails those who
// waited for it all together; who comes later tries again. Old files are for the user to delete, while no job
// starts. The folder should be on a disk of the node, or at least have flock (see Once). It and its
// files must belong to this user, and nobody else may write to them: whoever can changes what is trained on.
type Cache struct {
	Dir string // made if it is not there
}

// load returns what prepare makes of what look finds, which is called first. Without a cache it is made here
// and now.
func (c *Cache) load(ctx context.Context, look func() (source, error), prepare func() (*prepared, error)) (*prepared, error) {
	src, err := look()
	if err != nil {
		return nil, err
	}
	if c == nil {
		return prepare()
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for prepared data: %w", err)
	}
	if info, err := os.Stat(c.Dir); err != nil {
		return nil, fmt.Errorf("look at the folder for prepared data: %w", err)
	} else if err := vfs.CheckOwner(c.Dir, info); err != nil {
		return nil, fmt.Errorf("use the folder for prepared data: %w", err)
	}
	path := c.path(src)
	before := readFailure(path).Attempt
	var p *prepared
	ready := func() (bool, error) {
		var err error
		if p, err = openPrepared(path, src); err == nil {
			return true, nil
		}
		return false, cmp.Or(unlessStale(err), readFailure(path).since(before, src))
	}
	err = Once(ctx, path+".lock", ready, func() error {
		p, err = prepareFor(ctx, path, src, look, prepare)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// prepareFor puts what prepare makes of src into the file at path. The caller holds the lock.
func prepareFor(
	ctx context.Context, path string, src source, look func() (source, error), prepare func() (*prepared, error),
) (*prepared, error) {
	if err := src.settle(ctx); err != nil {
		return nil, err
	}
	made, err := prepare()
	if err != nil {
		keepFailure(path, src, err)
		return nil, err
	}
	if now, err := look(); err != nil || now != src {
		return nil, errors.Join(err, fmt.Errorf("%s changed while it was read: start again when it is complete", src.Path))
	}
	if err := writePrepared(path, src, made); err != nil {
		return nil, fmt.Errorf("keep prepared data: %w", err)
	}
	_ = os.Remove(failurePath(path)) // what may be there is over; if it stays, nobody takes it for its own
	return openPrepared(path, src)
}

// unlessStale is err, or nil if err can be mended by preparing anew.
func unlessStale(err error) error {
	if errors.Is(err, errStale) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// folder is what Dir leads to now, nil where there is nothing.
func (c *Cache) folder() (os.FileInfo, error) {
	if c == nil {
		return nil, nil
	}
	info, err := os.Stat(c.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at the folder for prepared data: %w", err)
	}
	return info, nil
}

// maxBase bounds what the name of a cache's file has of the source's: with what is added, a name has at most 255 bytes.
const maxBase = 100

// path is the file for src. It does not depend on size and time, so that a source that changed takes the place
// of what was prepared before.
func (c *Cache) path(src source) string {
	sum := sha256.Sum256([]byte(src.Path + "\x00" + src.Settings))
	base := filepath.Base(src.Path)
	if len(base) > maxBase {
		base = strings.ToValidUTF8(base[:maxBase], "")
	}
	return filepath.Join(c.Dir, fmt.Sprintf("%s-%x.data", base, sum[:8]))
}
