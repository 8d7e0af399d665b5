package data

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/vfs"
)

// mapping is a file in memory, read-only. Its pages are those of the kernel's cache, so that all
// ranks of a node hold them once. It is unmapped some time after the last pointer to the mapping is
// gone: who reads bytes keeps the mapping alive to the end of that (runtime.KeepAlive).
//
// Somebody who shortens the file meanwhile kills the process with SIGBUS (mmap(2)).
type mapping struct{ bytes []byte }

func openMapping(path string) (*mapping, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mapFile(f, info)
}

func mapFile(f *os.File, info os.FileInfo) (*mapping, error) {
	size := int(info.Size())
	if int64(size) != info.Size() {
		return nil, fmt.Errorf("%s has %d bytes: more than this machine can address", f.Name(), info.Size())
	}
	if size == 0 { // mmap refuses
		return &mapping{}, nil
	}
	// Private: file systems in user space may refuse shared mappings. Pages that nobody writes are shared all the same.
	bytes, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", f.Name(), err)
	}
	m := &mapping{bytes}
	runtime.AddCleanup(m, func(bytes []byte) {
		// It was mapped as a whole and once, so that there is no error that could happen.
		_ = unix.Munmap(bytes)
	}, bytes)
	return m, nil
}

// openRegular opens a file that must be a plain one, for reading.
func openRegular(path string) (*os.File, os.FileInfo, error) { return plain(vfs.OpenRegular(path)) }

// plain words the error of an open of what is no plain file.
func plain(f *os.File, info os.FileInfo, err error) (*os.File, os.FileInfo, error) {
	var p *os.PathError
	if errors.Is(err, vfs.ErrNotRegular) && errors.As(err, &p) {
		err = fmt.Errorf("%s is not a regular file", p.Path)
	}
	return f, info, err
}
