package data

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"
)

// source tells one prepared data set from another.
type source struct {
	Path     string `json:"path"`     // absolute
	Size     int64  `json:"size"`     // bytes, of all files
	Modified int64  `json:"modified"` // nanoseconds since 1970, of the newest file
	Changed  int64  `json:"changed"`  // likewise, of the inode (ctime): cp -p and rsync -t set the other time, not this one
	Inode    uint64 `json:"inode"`    // of a file; another one that is moved to its place has another
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

// settle waits until a further change would give s another time. A file that is changed twice
// within the grain of the clock may keep its time.
func (s source) settle(ctx context.Context) error {
	age := time.Since(time.Unix(0, s.Changed))
	if age >= clockGrain {
		return nil
	}
	select {
	case <-time.After(min(clockGrain, clockGrain-age)): // a server's clock may be ahead
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
