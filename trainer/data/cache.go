package data

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// Cache is a folder of prepared data: tables parsed from CSV, unpacked gzip, and trees of text joined into one
// file. The first rank that needs a file prepares it while the others wait, and all ranks map it, so that the ranks of a node
// hold it in memory once. A nil *Cache prepares in memory each time.
//
// A file of the cache is valid as long as its source has the same path, size, times (of content and inode) and inode
// number, and is read with the same settings; a damaged one is prepared again. If the data of a source is invalid, all ranks that
// wait for it fail together; a later rank tries again. The user deletes old files, while no job
// starts. The folder should be on a disk of the node, or at least support flock (see once). The folder and its
// files must belong to this user, and nobody else may write to them, because that would change what is trained on. Files are created with
// mode 0600.
type Cache struct {
	Dir string       // created if it does not exist, with mode 0700
	Log *slog.Logger // logs which process a rank waits for, if it waits long; nil: silent
}

// cacheFile is a file of prepared data, which may not exist yet, in the folder of a cache, which is held open.
type cacheFile struct {
	in   *os.Root
	name string
}

func (c cacheFile) path() string { return filepath.Join(c.in.Name(), c.name) }

// beside returns the name of another file for the same data.
func (c cacheFile) beside(suffix string) cacheFile { return cacheFile{c.in, c.name + suffix} }

// open opens the file. It must be a regular file of this user that nobody else can write to.
func (c cacheFile) open() (*os.File, os.FileInfo, error) {
	f, info, err := plain(vfs.OpenRegularIn(c.in, c.name))
	if err != nil {
		return nil, nil, err
	}
	if err := vfs.CheckOwner(c.path(), info); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// load returns the data that prepare makes of the source that look finds. look is called first. Without a cache the data is prepared in
// memory.
func (c *Cache) load(ctx context.Context, look func() (source, error), prepare func() (*prepared, error)) (*prepared, error) {
	src, err := look()
	if err != nil {
		return nil, err
	}
	if c == nil {
		return prepare()
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder for prepared data: %w", err)
	}
	in, err := vfs.OpenFolder(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("use the folder for prepared data: %w", err)
	}
	defer in.Close()
	at := cacheFile{in, fileName(src)}
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
	err = once(ctx, fileLock{lock.path(), open, c.Log}, ready, func() error {
		p, err = prepareFor(ctx, at, src, look, prepare)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// prepareFor writes the result of prepare for src to the file. The caller holds the lock.
func prepareFor(
	ctx context.Context, at cacheFile, src source, look func() (source, error), prepare func() (*prepared, error),
) (*prepared, error) {
	if err := src.waitForClock(ctx); err != nil {
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
	// The file is not synced: its checksum detects what a power cut damages.
	if err := replaceFile(at, func(w io.Writer) error { return encodePrepared(w, src, made) }); err != nil {
		return nil, fmt.Errorf("write prepared data: %w", err)
	}
	_ = at.in.Remove(failureOf(at).name) // an earlier failure is obsolete; if it stays, it is ignored
	return openPrepared(at, src)
}

// unlessStale returns err, or nil if preparing again can fix err.
func unlessStale(err error) error {
	if errors.Is(err, errStale) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// folder returns what Dir leads to, or nil if it does not exist.
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

// maxBase bounds the part of the source's name in the name of a cache file: with the rest, a name has at most 255 bytes.
const maxBase = 100

// fileName returns the name of the file for src. It does not depend on size and time, so that what is prepared of a changed
// source replaces the old file.
func fileName(src source) string {
	sum := sha256.Sum256([]byte(src.Path + "\x00" + src.Settings))
	base := filepath.Base(src.Path)
	if len(base) > maxBase {
		base = strings.ToValidUTF8(base[:maxBase], "")
	}
	return fmt.Sprintf("%s-%x.data", base, sum[:8])
}

// source identifies a prepared data set.
type source struct {
	Path     string `json:"path"`     // absolute
	Size     int64  `json:"size"`     // bytes, of all files
	Modified int64  `json:"modified"` // nanoseconds since 1970, of the newest file
	Changed  int64  `json:"changed"`  // the same for the inode (ctime): cp -p and rsync -t set Modified, but not this
	Inode    uint64 `json:"inode"`    // of a file; a file that replaces it has another one
	Files    string `json:"files"`    // of a tree: a hash of the names, sizes, times and inodes of all files
	Settings string `json:"settings"` // everything else that the result depends on, kind first
}

// clockGrain is more than the resolution of file times in Linux before 6.13 (10 ms at 100 Hz).
const clockGrain = 20 * time.Millisecond

// fileSource returns the present source for the file at path.
func fileSource(path, settings string) (source, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return source{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return source{}, err
	}
	changed, inode := inodeOf(info)
	return source{
		Path: readable(path), Size: info.Size(), Modified: info.ModTime().UnixNano(),
		Changed: changed, Inode: inode, Settings: settings,
	}, nil
}

// inodeOf returns the parts of a file's identity that only the kernel can set.
func inodeOf(info os.FileInfo) (changed int64, inode uint64) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return stat.Ctim.Nano(), stat.Ino
}

// readable returns path in a form that JSON can hold, since the bytes of a file name are arbitrary.
func readable(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return strconv.Quote(path)
}

// waitForClock waits until a further change would give s another time. A file that changes twice
// within the resolution of the clock may keep its time.
func (s source) waitForClock(ctx context.Context) error {
	age := time.Since(time.Unix(0, s.Changed))
	if age >= clockGrain {
		return nil
	}
	return pause.For(ctx, min(clockGrain, clockGrain-age)) // age is negative if a server's clock is ahead
}

// maxFailure bounds the file in which a failure is kept.
const maxFailure = 64 << 10

// failure is why a source could not be prepared. It is kept beside the prepared data, for the ranks that
// wait: otherwise each would find the same fault, one after the other.
type failure struct {
	Source  source `json:"source"`
	Attempt uint64 `json:"attempt"` // counts the failures of this file: a rank that comes after one tries again
	Text    string `json:"text"`
}

func failureOf(at cacheFile) cacheFile { return at.beside(".failed") }

// readFailure returns the newest failure to prepare a file. It returns the zero failure if there is none, if it cannot be read, or if
// another user may have written it.
func readFailure(at cacheFile) failure {
	file, info, err := failureOf(at).open()
	if err != nil {
		return failure{}
	}
	defer file.Close()
	if info.Size() > maxFailure {
		return failure{}
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFailure))
	var f failure
	if err != nil || json.Unmarshal(text, &f) != nil {
		return failure{}
	}
	return f
}

// since returns the error of a failure with src after attempt number before, or nil if f is not such a failure.
func (f failure) since(before uint64, src source) error {
	if f.Attempt == before || f.Source != src {
		return nil
	}
	return errors.New(f.Text)
}

// keepFailure writes err for the ranks that wait, if it is a fault of the data. The caller holds the lock.
func keepFailure(at cacheFile, src source, err error) {
	if !ofData(err) {
		return
	}
	f := failure{Source: src, Attempt: readFailure(at).Attempt + 1, Text: err.Error()}
	// Ranks that do not find the failure will find the fault itself.
	_ = replaceFile(failureOf(at), func(w io.Writer) error { return json.NewEncoder(w).Encode(f) })
}

// ofData reports whether another attempt with the same data would give err again: it is neither an error of a context nor one
// of the operating system.
func ofData(err error) bool {
	var number syscall.Errno
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &number)
}

// replaceFile writes a file, in place of the one that was there. Readers see either of them, complete. The
// caller holds a lock, so a temporary file that a killed process of this node has left is not in use. The file is not synced:
// readers detect what a power cut damages.
func replaceFile(at cacheFile, write func(io.Writer) error) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	temp := fmt.Sprintf(".%s.%s.tmp", at.name, filepath.Base(host))
	if err := at.in.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	o := replace.Options{Temp: temp, NoSync: true}
	return replace.FileWith(context.Background(), vfs.Held(at.in), filepath.Join(at.in.Name(), at.name), o, write)
}
