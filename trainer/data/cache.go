package data

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unicode/utf8"
)

// Cache is a folder of prepared data: tables parsed from CSV, unpacked gzip, a tree of text in one
// piece. The first rank that needs one prepares it while the others wait, and all map it, so that the ranks of a node
// hold it in memory once. A nil *Cache prepares in memory each time.
//
// A file of the cache serves as long as its source has the same path, size and time, and is read with the same
// settings; a damaged one is made anew. Old files are for the user to delete, while no job starts. The folder should be
// on a disk of the node, or at least have flock (see Once), and belong to the user alone: whoever can write there
// can change what is trained on.
type Cache struct {
	Dir string // made if it is not there
}

// source tells one prepared data set from another.
type source struct {
	Path     string `json:"path"`     // absolute
	Size     int64  `json:"size"`     // bytes, of all files
	Modified int64  `json:"modified"` // nanoseconds since 1970, of the newest file
	Files    string `json:"files"`    // of a tree: a hash of the names, sizes and times of all files
	Settings string `json:"settings"` // what else the result depends on, kind first
}

// fileSource is the source that the file at path is now.
func fileSource(path, settings string) (source, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return source{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return source{}, err
	}
	return source{Path: readable(path), Size: info.Size(), Modified: info.ModTime().UnixNano(), Settings: settings}, nil
}

// readable is path as JSON can hold it. A file's name may be any bytes.
func readable(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return strconv.Quote(path)
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
	path := c.path(src)
	var p *prepared
	ready := func() (bool, error) {
		found, err := openPrepared(path, src)
		p = found
		return err == nil, unlessStale(err)
	}
	err = Once(ctx, path+".lock", ready, func() error {
		made, err := prepare()
		if err != nil {
			return err
		}
		if now, err := look(); err != nil || now != src {
			return errors.Join(err, fmt.Errorf("%s changed while it was read: start again when it is complete", src.Path))
		}
		if err := writePrepared(path, src, made); err != nil {
			return fmt.Errorf("keep prepared data: %w", err)
		}
		p, err = openPrepared(path, src)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// unlessStale is err, or nil if err can be mended by preparing anew.
func unlessStale(err error) error {
	if errors.Is(err, errStale) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// path is the file for src. It does not depend on size and time, so that a source that changed takes the place
// of what was prepared before.
func (c *Cache) path(src source) string {
	sum := sha256.Sum256([]byte(src.Path + "\x00" + src.Settings))
	return filepath.Join(c.Dir, fmt.Sprintf("%s-%x.data", filepath.Base(src.Path), sum[:8]))
}
