package main

import "ddpbatch/internal/vfs"

// fileSystem names the file system of a folder.
func fileSystem(dir string) string {
	space, err := vfs.OS{}.Space(dir)
	if err != nil {
		return "file system unknown"
	}
	return space.Type
}
