package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"
)

// peak is the largest resident set of any rank, by the kernel's account (getrusage(2), ru_maxrss), in MiB.
func peak(commands []*exec.Cmd) float64 {
	most := int64(0)
	for _, cmd := range commands {
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			most = max(most, usage.Maxrss) // KiB, on Linux
		}
	}
	return float64(most) / 1024
}

// forgetPeak brings this process's peak down to what it has now, which is less than any rank's: a process begins with
// the peak of the memory that it was started from, and Go starts it from this one's (proc(5), clear_refs; vfork(2)).
func forgetPeak() error {
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak of resident memory: %w", err)
	}
	return nil
}
