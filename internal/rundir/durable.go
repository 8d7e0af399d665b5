package rundir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"ddpbatch/internal/backoff"
	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// writeFile durably replaces path by a file with the bytes that fill writes. After a crash at any moment the file is the old one or the
// complete new one.
func writeFile(path string, perm os.FileMode, fill func(io.Writer) error) error {
	return replace.FileWith(context.Background(), vfs.OS{}, path, replace.Options{Mode: perm}, fill)
}

// writeBytes is writeFile for data in memory.
func writeBytes(path string, perm os.FileMode, data []byte) error {
	return writeFile(path, perm, replace.Bytes(data))
}

// readFile reads the present version of a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	return retryStale(func() ([]byte, error) { return readOnce(path, limit) })
}

func readOnce(path string, limit int64) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes, too many for such a file of a run", path, limit)
	}
	return data, nil
}

// openFile opens a file of a run for reading. It waits for a lease on the file only in a directory of the caller: another user could hold
// leases on many files to delay readers.
func openFile(path string) (*os.File, error) {
	open := vfs.OpenRegular
	if !ownFolder(filepath.Dir(path)) {
		open = vfs.OpenRegularNow
	}
	f, _, err := open(path)
	return f, err
}

// ownFolder reports whether path is a directory of the caller and not a link to one. Another user cannot create one.
func ownFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir() && vfs.Owner(info) == os.Geteuid()
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

const (
	staleTries     = 4
	firstStaleWait = 50 * time.Millisecond
	lastStaleWait  = 200 * time.Millisecond
)

// retryStale calls read again while it fails with ESTALE: on a network file system another node may replace a file while it is read here.
func retryStale[T any](read func() (T, error)) (T, error) {
	wait := backoff.Backoff{First: firstStaleWait, Most: lastStaleWait}
	for try := 1; ; try++ {
		got, err := read()
		if try == staleTries || !errors.Is(err, syscall.ESTALE) {
			return got, err
		}
		_ = wait.Wait(context.Background()) // the context never ends
	}
}

// system returns the file system in which attempts are claimed.
func (d *Dir) system() vfs.FS {
	if d.files != nil {
		return d.files
	}
	return vfs.OS{}
}
