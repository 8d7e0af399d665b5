package proc

import (
	"bytes"
	"fmt"
	"strconv"
	"syscall"
)

const (
	maxStatus = 64 << 10 // bytes of /proc/PID/status: a line names every group of the user
	maxSignal = 64
)

// Handles tells whether a process has a handler for a signal, as /proc/PID/status says (SigCgt; proc(5)). All threads of a
// process have the same handlers. A process that has none dies of most signals, or ignores them.
func Handles(pid int, sig syscall.Signal) (bool, error) {
	text, err := readSome(fmt.Sprintf("/proc/%d/status", pid), maxStatus)
	if err != nil {
		return false, fmt.Errorf("ask for the signal handlers of process %d: %w", pid, err)
	}
	caught, err := caughtSignals(text)
	if err != nil {
		return false, fmt.Errorf("ask for the signal handlers of process %d: %w", pid, err)
	}
	return sig >= 1 && sig <= maxSignal && caught>>(sig-1)&1 == 1, nil
}

func caughtSignals(status []byte) (uint64, error) {
	for line := range bytes.Lines(status) {
		if mask, ok := bytes.CutPrefix(line, []byte("SigCgt:")); ok {
			return strconv.ParseUint(string(bytes.TrimSpace(mask)), 16, 64)
		}
	}
	return 0, fmt.Errorf("%.40q has no line SigCgt", status)
}
