package processes

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Memory is the memory of a process according to the kernel, in bytes.
type Memory struct {
	Resident, Highest int64
	Own               int64 // part of Resident that is not the program's file
}

// MemoryOf reads /proc/PID/status (proc(5)).
func MemoryOf(pid int) (Memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("read a process's memory: %w", err)
	}
	return parseMemory(string(status))
}

func parseMemory(status string) (m Memory, err error) {
	for name, to := range map[string]*int64{"VmRSS": &m.Resident, "VmHWM": &m.Highest, "RssAnon": &m.Own} {
		_, rest, found := strings.Cut("\n"+status, "\n"+name+":")
		if _, err := fmt.Sscanf(rest, "%d kB", to); !found || err != nil {
			return m, fmt.Errorf("a process's status has no %s", name)
		}
		*to <<= 10
	}
	return m, nil
}

// ForgetPeak resets this process's peak memory to its present memory (proc(5), clear_refs). A process begins with the peak of the memory
// that it was started from, and Go starts it from this process's (vfork(2)).
func ForgetPeak() error {
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak of resident memory: %w", err)
	}
	return nil
}

// CPUTime returns the processor time of a process so far, of all of its threads, in user space and in the kernel.
func CPUTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: the clock's number is derived from the process's (clock_getcpuclockid(3))
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("read a process's processor time: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
