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

// ErrNotRegular: what has the name is no regular file but a folder, a pipe, a socket or a device.
var ErrNotRegular = errors.New("it is no regular file")

// OpenRegular opens a file for reading, and says what it has opened; what is no regular file is ErrNotRegular, and never waited for. It is
// for all that reads files in places that others can write to: a pipe there would block the open until its other end is opened, too.
func OpenRegular(name string) (*os.File, fs.FileInfo, error) {
	return openRegular(name, func(flags int) (*os.File, error) { return os.OpenFile(name, flags, 0) })
}

// OpenRegularIn is OpenRegular for what has a name in a folder that is held open.
func OpenRegularIn(in *os.Root, name string) (*os.File, fs.FileInfo, error) {
	path := filepath.Join(in.Name(), name)
	return openRegular(path, func(flags int) (*os.File, error) {
		f, err := in.OpenFile(name, flags, 0)
		return f, named(err, "open", path)
	})
}

// OpenRegularNow is OpenRegular for a file whose owner may mean harm: it does not wait for a lease on it either, and then the error is
// EAGAIN.
func OpenRegularNow(name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return opened(name, f, err)
}

// OpenRegularNoLink is OpenRegularNow that follows no link as the last part of the path, and then the error is ELOOP.
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

// opened is what OpenRegular returns once an open has ended so.
func opened(name string, f *os.File, err error) (*os.File, fs.FileInfo, error) {
	if errors.Is(err, syscall.ENXIO) { // a socket
		err = notRegular(name, fs.ModeSocket)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat() // of what was opened, so that nobody can change it in between
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(name, info.Mode())
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// openLeased opens what another process holds a lease on (fcntl(2), F_SETLEASE), as Samba and the kernel's NFS server do for their clients:
// the open that was tried has asked for it back. It is tried again until the lease is gone, and never without O_NONBLOCK, which would wait
// by itself: a pipe may have taken the name meanwhile.
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
	// serverLease is how long the kernel's NFS server waits for a client that does not answer (/proc/fs/nfsd/nfsv4leasetime).
	serverLease = 90 * time.Second
	leaseMargin = 5 * time.Second
)

// leaseLimit is when a lease is gone for certain: the kernel takes it away after lease-break-time, which is 45 s by default.
func leaseLimit() time.Duration {
	text, _ := os.ReadFile("/proc/sys/fs/lease-break-time")
	seconds, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0 where it is not known
	return max(time.Duration(seconds)*time.Second, serverLease) + leaseMargin
}

// notRegular is the error of an open of what has such a mode.
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

// IsDir tells whether path is a folder, or a link to one.
func IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
