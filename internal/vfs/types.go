package vfs

import "fmt"

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
