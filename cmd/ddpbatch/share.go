package main

import (
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// speakEvery is how often a rank tells how training goes in the middle of an epoch.
const speakEvery = 10 * time.Second

// threadsOf is how many cores the built-in trainer computes on: what the launcher, or the user, has written to OMP_NUM_THREADS, or else
// those that this process may run on.
func threadsOf(e *env) int {
	if n, err := strconv.Atoi(e.get("OMP_NUM_THREADS")); err == nil && n > 0 {
		return n
	}
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mask); err != nil {
		return 1
	}
	return max(1, mask.Count())
}

// libraryDirs are where a site's own BLAS may be that the system's loader does not know.
func libraryDirs(e *env) []string {
	if conda := e.get("CONDA_PREFIX"); conda != "" {
		return []string{filepath.Join(conda, "lib")}
	}
	return nil
}
