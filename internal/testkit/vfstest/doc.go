// Package vfstest holds file systems for tests, and helpers for files of a vfs.FS.
//
//   - Mem keeps everything in memory and knows what has been synced, so that a test can get the file system as it would be after a power
//     cut (Mem.CrashClone).
//   - Injector wraps another file system, numbers and records its operations, and makes chosen ones fail, return false results, or wait.
//   - View shows a Mem as one client of an NFS server sees it.
//
// Their errors are of the kinds that vfs.OS returns. The idea and the shape of the file system with crashes are those of Pebble's vfs
// package.
package vfstest
