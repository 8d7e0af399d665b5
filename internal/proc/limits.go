package proc

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/text"
)

// rdmaMemory is the least that a process must be able to lock for InfiniBand: buffers and queues that a card reads are locked.
const rdmaMemory = 64 << 20

// limits are raised from their soft to their hard value, for this process and the children it will have.
//
// The stack stays: the kernel lays out the memory of a program that is started without a limit for it in another way (mmap grows up from
// below, so that large mappings may not fit), and threads get as much each. Core files stay off where they are
// off: those of hundreds of ranks fill a file system.
var limits = []struct {
	name     string // as the shell's ulimit calls it in words
	resource int
}{
	{"open files", unix.RLIMIT_NOFILE},
	{"processes", unix.RLIMIT_NPROC},
	{"locked memory", unix.RLIMIT_MEMLOCK},
}

// RaiseLimits raises this process's limits as far as it may, and tells what a person should know of what it could not. It is called before
// children are started.
func RaiseLimits() (warnings []string, err error) {
	for _, l := range limits {
		var now unix.Rlimit
		if e := unix.Getrlimit(l.resource, &now); e != nil {
			err = errors.Join(err, fmt.Errorf("ask for the limit of %s: %w", l.name, e))
			continue
		}
		// Go raises that of open files for itself as it starts, and gives children what it found; only having set it, even to
		// what it is, gives them the same (golang/go#46279).
		if now.Cur != now.Max || l.resource == unix.RLIMIT_NOFILE {
			now.Cur = now.Max
			if e := unix.Setrlimit(l.resource, &now); e != nil {
				err = errors.Join(err, fmt.Errorf("raise the limit of %s to %s: %w", l.name, limitText(now.Max), e))
				continue
			}
		}
		if l.resource == unix.RLIMIT_MEMLOCK && now.Max < rdmaMemory {
			warnings = append(warnings, fmt.Sprintf("a process may lock no more than %s of memory, which is too little for InfiniBand:"+
				" an administrator can raise it for jobs (LimitMEMLOCK of slurmd's unit, PropagateResourceLimitsExcept=MEMLOCK in "+
				"slurm.conf)", text.Bytes(now.Max)))
		}
	}
	return warnings, err
}

func limitText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return fmt.Sprint(n)
}

// ForbidCore has the kernel write no core file of a process, whatever it dies of: those of hundreds of ranks fill a file system, and take
// long. A limit of one byte forbids also what a program of the system's would be given (core(5), a pipe in core_pattern; fs/coredump.c).
func ForbidCore(pid int) error {
	var now unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &now)
	if err == nil {
		now.Cur = min(1, now.Max)
		err = unix.Prlimit(pid, unix.RLIMIT_CORE, &now, nil)
	}
	if err != nil {
		return fmt.Errorf("forbid process %d a core file: %w", pid, err)
	}
	return nil
}
