package vfs

// FS is the part of a file system that checkpoints need.
type FS interface{}
