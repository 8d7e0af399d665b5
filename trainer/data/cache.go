package data

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
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
// files must belong to this user, and nobody else may write to them: whoever can changes what is trained on. Files are this user's alone
// (0600).
type Cache struct {
	Dir string       // made if it is not there, with mode 0700
	Log *slog.Logger // is told whom a rank waits for, where it waits for long; nil: silent
}

// cached is the place of prepared data in the folder of a cache, which is held open.
type cached struct {
	in   *os.Root
	name string
}

func (c cached) path() string { return filepath.Join(c.in.Name(), c.name) }

// beside is the place of another file for the same data.
func (c cached) beside(suffix string) cached { return cached{c.in, c.name + suffix} }

// open opens the file, which must be a plain one of this user's that nobody else can write to.
func (c cached) open() (*os.File, os.FileInfo, error) {
	f, info, err := plain(vfs.OpenRegularIn(c.in, c.name))
	if err != nil {
		return nil, nil, err
	}
	if err := vfs.CheckOwner(c.path(), info); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
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
	in, err := vfs.OpenFolder(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("use the folder for prepared data: %w", err)
	}
	defer in.Close()
	at := cached{in, fileName(src)}
	before := readFailure(at).Attempt
	var p *prepared
	ready := func() (bool, error) {
		var err error
		if p, err = openPrepared(at, src); err == nil {
			return true, nil
		}
		return false, cmp.Or(unlessStale(err), readFailure(at).since(before, src))
	}
	lock := at.beside(".lock")
	open := func(flags int) (*os.File, error) { return in.OpenFile(lock.name, flags, 0o600) }
	err = once(ctx, turn{lock.path(), open, c.Log}, ready, func() error {
		p, err = prepareFor(ctx, at, src, look, prepare)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// prepareFor puts what prepare makes of src into the file. The caller holds the lock.
func prepareFor(
	ctx context.Context, at cached, src source, look func() (source, error), prepare func() (*prepared, error),
) (*prepared, error) {
	if err := src.settle(ctx); err != nil {
		return nil, err
	}
	made, err := prepare()
	if err != nil {
		keepFailure(at, src, err)
		return nil, err
	}
	if now, err := look(); err != nil || now != src {
		return nil, errors.Join(err, fmt.Errorf("%s changed while it was read: start again when it is complete", src.Path))
	}
	if err := writePrepared(at, src, made); err != nil {
		return nil, fmt.Errorf("keep prepared data: %w", err)
	}
	_ = at.in.Remove(failureOf(at).name) // what may be there is over; if it stays, nobody takes it for its own
	return openPrepared(at, src)
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

// fileName is that of the file for src. It does not depend on size and time, so that a source that changed takes the place
// of what was prepared before.
func fileName(src source) string {
	sum := sha256.Sum256([]byte(src.Path + "\x00" + src.Settings))
	base := filepath.Base(src.Path)
	if len(base) > maxBase {
		base = strings.ToValidUTF8(base[:maxBase], "")
	}
	return fmt.Sprintf("%s-%x.data", base, sum[:8])
}
