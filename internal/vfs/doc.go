// Package vfs is the interface between checkpoints and the file system. FS has only the operations that a durable commit needs, and OS
// implements it for the operating system. Tests use other implementations (internal/testkit/vfstest).
//
// Errors are those of package os: *fs.PathError or *os.LinkError around a syscall.Errno, so that errors.Is(err, fs.ErrNotExist) and
// errors.Is(err, syscall.ENOSPC) work for all implementations.
//
// OpenRegular and CreateMode are for packages that do not need the interface: they open and create a file as OS does.
//
// # Other users
//
// CheckOwner, PrivateDir, OpenFolder and ExposedAbove distinguish what only this user can change from what others can change. Their error
// is ErrExposed. OpenFolder and Within keep a directory open (Held uses such a directory), so that nobody can replace it by another. Owners
// are those of Unix.
package vfs
