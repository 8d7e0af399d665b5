// Package vfs is the seam between checkpoints and the file system: an interface with just the
// operations that a durable commit needs, and four implementations of it.
//
//   - OS is the operating system's.
//   - Mem keeps everything in memory and knows what has been synced, so that a test can ask for
//     the file system as it would be after a power cut (Mem.CrashClone).
//   - Injector wraps another file system, numbers its operations, records them, and makes chosen
//     ones fail, answer falsely, or wait.
//   - View shows a Mem as one client of an NFS server sees it.
//
// Errors are those of package os: *fs.PathError or *os.LinkError round a syscall.Errno, so that
// errors.Is(err, fs.ErrNotExist) and errors.Is(err, syscall.ENOSPC) hold for all four.
//
// OpenRegular and CreateMode are for rooms that need no seam: they open and make a file as OS does.
//
// # Other users
//
// CheckOwner, PrivateDir, OpenFolder and ExposedAbove tell what is this user's alone from what others can change, for
// all rooms; their error is ErrExposed. OpenFolder and Within hold a folder open (Held goes on with such a one), so
// that nobody can put another in its place. Owners are those of Unix.
//
// The idea, and the shape of the crashable memory file system, are those of Pebble's vfs package.
package vfs
