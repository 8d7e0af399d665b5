package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// fallocate keeps the file's length, so that a file cut short still looks short.
func fallocate(f *os.File, size int64) error {
	return control(f, func(fd int) error {
		for {
			err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size)
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
}

func startWriteback(f *os.File, offset, n int64) {
	_ = control(f, func(fd int) error { return unix.SyncFileRange(fd, offset, n, unix.SYNC_FILE_RANGE_WRITE) })
}

func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// Space is statfs(2). Blocks are counted in fragments there, as statvfs(3) says: FUSE file
// systems have the two differ.
func (OS) Space(name string) (Space, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(name, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Space{}, pathError("statfs", name, err)
		}
		break
	}
	unit := uint64(st.Frsize) // its type differs between architectures
	if unit == 0 {
		unit = uint64(st.Bsize)
	}
	return Space{Type: typeName(uint32(st.Type)), Free: st.Bavail * unit, Total: st.Blocks * unit}, nil
}
