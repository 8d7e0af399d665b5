package vfs

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fallocate keeps the file's length, so that a file that is cut short is recognized as such.
func fallocate(f *os.File, size int64) error {
	return control(f, func(fd int) error {
		return uninterrupted(func() error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size) })
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

// Space uses statfs(2). Blocks are counted in fragments, as statvfs(3) says: on FUSE file systems the two sizes differ.
func (OS) Space(name string) (Space, error) {
	var st unix.Statfs_t
	if err := uninterrupted(func() error { return unix.Statfs(name, &st) }); err != nil {
		return Space{}, pathError("statfs", name, err)
	}
	unit := uint64(st.Frsize) // its type differs between architectures
	if unit == 0 {
		unit = uint64(st.Bsize)
	}
	magic := uint32(st.Type)
	return Space{Type: cmp.Or(typeNames[magic], fmt.Sprintf("%#x", magic)), Free: st.Bavail * unit, Total: st.Blocks * unit}, nil
}

// typeNames maps statfs's magic numbers to names of file systems: those in statfs(2), and those of cluster file systems, from their
// sources.
var typeNames = map[uint32]string{
	0x0000ef53: "ext4", // ext2 and ext3 have the same number
	0x58465342: "xfs",
	0x9123683e: "btrfs",
	0x2fc12fc1: "zfs",
	0xf2f52010: "f2fs",
	0xca451a4e: "bcachefs",
	0x01021994: "tmpfs",
	0x858458f6: "ramfs",
	0x794c7630: "overlay",
	0x65735546: "fuse",
	0x00006969: "nfs",
	0x0bd00bd0: "lustre",
	0x47504653: "gpfs",
	0x19830326: "beegfs",
	0x00c36400: "ceph",
	0xff534d42: "cifs",
	0xfe534d42: "cifs",
	0x0000517b: "smb",
	0x5346414f: "afs",
	0x20030528: "orangefs",
	0x01021997: "9p",
}
