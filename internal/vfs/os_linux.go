package vfs

import (
	"errors"
	"fmt"
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

// typeName names a file system by statfs's magic number: those of statfs(2), and of the file
// systems of clusters, which have theirs in their own sources.
func typeName(magic uint32) string {
	switch magic {
	case 0x0000ef53:
		return "ext4" // ext2 and ext3 have the same number
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x2fc12fc1:
		return "zfs"
	case 0xf2f52010:
		return "f2fs"
	case 0xca451a4e:
		return "bcachefs"
	case 0x01021994:
		return "tmpfs"
	case 0x858458f6:
		return "ramfs"
	case 0x794c7630:
		return "overlay"
	case 0x65735546:
		return "fuse"
	case 0x00006969:
		return "nfs"
	case 0x0bd00bd0:
		return "lustre"
	case 0x47504653:
		return "gpfs"
	case 0x19830326:
		return "beegfs"
	case 0x00c36400:
		return "ceph"
	case 0xff534d42, 0xfe534d42:
		return "cifs"
	case 0x0000517b:
		return "smb"
	case 0x5346414f:
		return "afs"
	case 0x20030528:
		return "orangefs"
	case 0x01021997:
		return "9p"
	}
	return fmt.Sprintf("%#x", magic)
}
