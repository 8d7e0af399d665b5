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

// Cache is a folder of prepared data: tables parsed from CSV, unpacked gzip, a tree of text in one
// piece. The first rank that needs one prepares it while the others wait, and all map it, so that the ranks of a node
// hold it in memory once. A nil *Cache prepares in memory each time.
//
// A file of the cache serves as long as its source has the same path, size, times (of content and inode) and inode
// number, and is read with the same settings; a damaged one is made anew. A source whose data is at fault fails those who
// waited for it all together; who comes later tries again. Old files are for the user to delete, while no job
// starts. The folder should be on a disk of the node, or at least have flock (see once). It and its
// files must belong to this user, and nobody else may write to them: whoever can changes what is trained on. Files are this user's alone
// (0600).
type Cache struct {
	Dir string       // made if it is not there, with mode 0700
	Log *slog.Logger // is told whom a rank waits for, where it waits for long; nil: silent
}

// cacheFile is a file of prepared data, or where it is to be, in the folder of a cache, which is held open.
type cacheFile struct {
	in   *os.Root
	name string
}

func (c cacheFile) path() string { return filepath.Join(c.in.Name(), c.name) }

// beside is another file for the same data.
func (c cacheFile) beside(suffix string) cacheFile { return cacheFile{c.in, c.name + suffix} }

// open opens the file, which must be a plain one of this user's that nobody else can write to.
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

// prepareFor puts what prepare makes of src into the file. The caller holds the lock.
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
	// What a power cut leaves is found out by its sum.
	if err := replaceFile(at, func(w io.Writer) error { return encodePrepared(w, src, made) }); err != nil {
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

// fileName is that of the file for src. It does not depend on size and time, so that what is prepared of a source
// that changed replaces what was prepared before.
func fileName(src source) string {
	sum := sha256.Sum256([]byte(src.Path + "\x00" + src.Settings))
	base := filepath.Base(src.Path)
	if len(base) > maxBase {
		base = strings.ToValidUTF8(base[:maxBase], "")
	}
	return fmt.Sprintf("%s-%x.data", base, sum[:8])
}

// source tells one prepared data set from another.
type source struct {
	Path     string `json:"path"`     // absolute
	Size     int64  `json:"size"`     // bytes, of all files
	Modified int64  `json:"modified"` // nanoseconds since 1970, of the newest file
	Changed  int64  `json:"changed"`  // likewise, of the inode (ctime): cp -p and rsync -t set the other time, not this one
	Inode    uint64 `json:"inode"`    // of a file; another one that replaces it has another
	Files    string `json:"files"`    // of a tree: a hash of the names, sizes, times and inodes of all files
	Settings string `json:"settings"` // what else the result depends on, kind first
}

// clockGrain is above the steps in which Linux before 6.13 stamps files (10 ms at 100 Hz).
const clockGrain = 20 * time.Millisecond

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
	changed, inode := inodeOf(info)
	return source{
		Path: readable(path), Size: info.Size(), Modified: info.ModTime().UnixNano(),
		Changed: changed, Inode: inode, Settings: settings,
	}, nil
}

// inodeOf is what of a file's identity is the kernel's alone to set.
func inodeOf(info os.FileInfo) (changed int64, inode uint64) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return stat.Ctim.Nano(), stat.Ino
}

// readable is path as JSON can hold it. A file's name may be any bytes.
func readable(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return strconv.Quote(path)
}

// waitForClock waits until a further change would give s another time. A file that is changed twice
// within the grain of the clock may keep its time.
func (s source) waitForClock(ctx context.Context) error {
	age := time.Since(time.Unix(0, s.Changed))
	if age >= clockGrain {
		return nil
	}
	return pause.For(ctx, min(clockGrain, clockGrain-age)) // a server's clock may be ahead
}

// maxFailure bounds the file that a failure is kept in.
const maxFailure = 64 << 10

// failure is why a source could not be prepared. It is kept beside the prepared data, for the ranks that
// wait: each would find the same fault, one after the other.
type failure struct {
	Source  source `json:"source"`
	Attempt uint64 `json:"attempt"` // counts the failures of this file: who came later than one tries again
	Text    string `json:"text"`
}

func failureOf(at cacheFile) cacheFile { return at.beside(".failed") }

// readFailure is the newest failure to prepare what belongs there, zero where there is none that can be read, or another user may have
// written it.
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

// since is the error of a failure with src after attempt number before, nil if f is none.
func (f failure) since(before uint64, src source) error {
	if f.Attempt == before || f.Source != src {
		return nil
	}
	return errors.New(f.Text)
}

// keepFailure keeps err for those who wait, if it is a fault of the data. The caller holds the lock.
func keepFailure(at cacheFile, src source, err error) {
	if !ofData(err) {
		return
	}
	f := failure{Source: src, Attempt: readFailure(at).Attempt + 1, Text: err.Error()}
	// Who does not find the failure comes upon the fault itself.
	_ = replaceFile(failureOf(at), func(w io.Writer) error { return json.NewEncoder(w).Encode(f) })
}

// ofData tells whether another attempt with the same data would give err again: it is neither that of a context nor one
// of the operating system's.
func ofData(err error) bool {
	var number syscall.Errno
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &number)
}

// replaceFile puts what write writes into a file, in place of what was there. Readers see either, whole. The
// caller holds a lock: the temporary file, which may be there from a process that was killed, is nobody's then, of
// this node. No sync: what a power cut leaves is for the reader to find out.
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
