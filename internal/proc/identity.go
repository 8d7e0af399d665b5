package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Identity names one process among all of all machines: a number alone belongs to another process sooner or later.
type Identity struct {
	Machine string `json:"machine"` // the machine's present start, and the space that the number is of; "": not known
	PID     int    `json:"pid"`
	Start   uint64 `json:"start"` // when it began, in the machine's ticks
}

// Self is the identity of this process.
func Self() (Identity, error) {
	machine, err := machineID()
	if err != nil {
		return Identity{}, err
	}
	own, err := readStat(os.Getpid())
	if err != nil {
		return Identity{}, fmt.Errorf("read when this process began: %w", err)
	}
	return Identity{Machine: machine, PID: own.pid, Start: own.start}, nil
}

// Lives tells whether the process has not ended. Of a process of another machine, or of another space of process ids, known is false.
func (id Identity) Lives() (lives, known bool) {
	machine, err := machineID()
	if err != nil || machine != id.Machine || id.PID <= 0 {
		return false, false
	}
	if err := unix.Kill(id.PID, 0); errors.Is(err, unix.ESRCH) {
		return false, true
	}
	now, err := readStat(id.PID)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH): // it has ended just now, or is hidden (proc(5), hidepid)
		return !errors.Is(unix.Kill(id.PID, 0), unix.ESRCH), true
	case err != nil:
		return true, true
	}
	return now.start == id.Start && !now.zombie(), true
}

// machineID tells this machine, since it was started, from others, and this process's view of process ids from those of containers.
func machineID() (string, error) {
	boot, err := readSome("/proc/sys/kernel/random/boot_id", 64)
	if err != nil {
		return "", fmt.Errorf("tell this machine from others: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", fmt.Errorf("tell this machine from others: %w", err)
	}
	return string(bytes.TrimSpace(boot)) + " " + space, nil
}
