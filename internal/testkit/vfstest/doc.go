// Package vfstest holds file systems for tests, and what tests do with files of a vfs.FS: they make a disk with a run's folder, read files
// and put other bytes in their place.
//
//   - Mem keeps everything in memory and knows what has been synced, so that a test can ask for
//     the file system as it would be after a power cut (Mem.CrashClone).
//   - Injector wraps another file system, numbers its operations, records them, and makes chosen
//     ones fail, answer falsely, or wait.
//   - View shows a Mem as one client of an NFS server sees it.
//
// Their errors are of the kinds that vfs.OS answers with. The idea, and the shape of the crashable memory file system, are those of
// Pebble's vfs package.
package vfstest
