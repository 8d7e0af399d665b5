package vfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/backoff"
)

// ErrNotRegular means that a name belongs to a directory, a pipe, a socket or a device.
var ErrNotRegular = errors.New("not a regular file")

// OpenRegular opens a regular file for reading, and returns its FileInfo. For anything else it returns ErrNotRegular at once. Use it to
// read files in places where others can write: a plain open of a pipe blocks until its other end is opened.
func OpenRegular(name string) (*os.File, fs.FileInfo, error) {
	return openRegular(name, func(flags int) (*os.File, error) { return os.OpenFile(name, flags, 0) })
}

// OpenRegularIn is OpenRegular for a name in an open directory.
func OpenRegularIn(in *os.Root, name string) (*os.File, fs.FileInfo, error) {
	path := filepath.Join(in.Name(), name)
	return openRegular(path, func(flags int) (*os.File, error) {
		f, err := in.OpenFile(name, flags, 0)
		return f, named(err, "open", path)
	})
}

// OpenRegularNow is OpenRegular for a file whose owner may be hostile: it does not wait for a lease either, but returns EAGAIN.
func OpenRegularNow(name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return opened(name, f, err)
}

// OpenRegularNoLink is OpenRegularNow, but does not follow a link as the last element of the path: it returns ELOOP.
func OpenRegularNoLink(name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	return opened(name, f, err)
}

func openRegular(name string, open func(flags int) (*os.File, error)) (*os.File, fs.FileInfo, error) {
	f, err := open(os.O_RDONLY | syscall.O_NONBLOCK)
	if errors.Is(err, syscall.EAGAIN) {
		f, err = openLeased(open)
	}
	return opened(name, f, err)
}

// opened returns the results of OpenRegular for those of an open.
func opened(name string, f *os.File, err error) (*os.File, fs.FileInfo, error) {
	if errors.Is(err, syscall.ENXIO) { // a socket
		err = notRegular(name, fs.ModeSocket)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat() // of the open file, so that it cannot be exchanged in between
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(name, info.Mode())
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// openLeased opens a file on which another process holds a lease (fcntl(2), F_SETLEASE), as Samba and the kernel's NFS server do for their
// clients. The first attempt to open it has asked for the lease back. openLeased tries again until the lease is gone, always with
// O_NONBLOCK. Without that the kernel would wait, but a pipe may have taken the name meanwhile.
func openLeased(open func(flags int) (*os.File, error)) (*os.File, error) {
	limited, cancel := context.WithTimeout(context.Background(), leaseLimit())
	defer cancel()
	for wait := (backoff.Backoff{First: time.Millisecond, Most: longestLook}); ; {
		waited := wait.Wait(limited)
		f, err := open(os.O_RDONLY | syscall.O_NONBLOCK)
		if !errors.Is(err, syscall.EAGAIN) || waited != nil {
			return f, err
		}
	}
}

const (
	longestLook = 100 * time.Millisecond
	// serverLease is how long the kernel's NFS server waits for a client that does not respond (/proc/fs/nfsd/nfsv4leasetime).
	serverLease = 90 * time.Second
	leaseMargin = 5 * time.Second
)

// leaseLimit is the time after which a lease is certainly gone: the kernel removes it after lease-break-time, by default 45 s.
func leaseLimit() time.Duration {
	text, _ := os.ReadFile("/proc/sys/fs/lease-break-time")
	seconds, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0 if it is not known
	return max(time.Duration(seconds)*time.Second, serverLease) + leaseMargin
}

// notRegular returns the error for opening a file of another kind.
func notRegular(name string, mode fs.FileMode) error {
	what := "a device"
	switch {
	case mode.IsDir():
		what = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	}
	return pathError("open", name, fmt.Errorf("%w but %s", ErrNotRegular, what))
}

// IsDir reports whether path is a directory, or a link to one.
func IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
