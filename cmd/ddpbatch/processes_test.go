package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// processesWith lists the live processes of this machine whose environment has all the given NAME=value
// pairs. Zombies have no environment any more.
func processesWith(pairs ...string) []int {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []int
	for _, path := range paths {
		environ, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		all := true
		for _, pair := range pairs {
			all = all && bytes.Contains(append([]byte{0}, environ...), append([]byte("\x00"+pair), 0))
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && all {
			pids = append(pids, pid)
		}
	}
	return pids
}
