// Package vfs is the seam between checkpoints and the file system: an interface with just the
// operations that a durable commit needs, and OS, the operating system's. Tests have others (internal/testkit/vfstest).
//
// Errors are those of package os: *fs.PathError or *os.LinkError round a syscall.Errno, so that
// errors.Is(err, fs.ErrNotExist) and errors.Is(err, syscall.ENOSPC) hold for all.
//
// OpenRegular and CreateMode are for packages that need no seam: they open and make a file as OS does.
//
// # Other users
//
// CheckOwner, PrivateDir, OpenFolder and ExposedAbove tell what is this user's alone from what others can change, for
// all packages; their error is ErrExposed. OpenFolder and Within hold a folder open (Held goes on with such a one), so
// that nobody can put another in its place. Owners are those of Unix.
package vfs
