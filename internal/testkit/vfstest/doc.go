// Package vfstest holds what tests do with files of a vfs.FS: they make a disk with a run's folder, read files and put other bytes in their place.
package vfstest
