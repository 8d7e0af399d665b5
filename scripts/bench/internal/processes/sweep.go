package processes

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	sweepPasses = 200
	sweepPause  = 5 * time.Millisecond // between passes, for the killed to end
)

// sweep kills every process that has the entry mark in its environment, and those that they start meanwhile: pass after
// pass until one finds none, or for about a second, as what waits for a disk does not end sooner.
func sweep(mark string) {
	for range sweepPasses {
		found := marked(mark)
		if len(found) == 0 {
			return
		}
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone is as good
		}
		time.Sleep(sweepPause)
	}
}

// marked lists the processes that have the entry mark in their environment (proc(5), /proc/pid/environ); of those that
// have ended and wait for their parent, it is empty.
func marked(mark string) []int {
	var found []int
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		environ, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+mark+"\x00")) {
			continue // gone meanwhile, another's, or not of this launch
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
