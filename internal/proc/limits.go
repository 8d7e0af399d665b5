package proc

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/text"
)

// rdmaMemory is the amount of memory that a process must be able to lock for InfiniBand, which locks the buffers and queues that a card
// reads.
const rdmaMemory = 64 << 20

// limits are raised from their soft to their hard value, for this process and its later children.
//
// The stack limit stays: with an unlimited stack the kernel lays out a program's memory differently (mmap grows upward, so that large
// mappings may not fit), and each thread gets a stack of that size. Core files stay disabled if they are: those of hundreds of ranks fill a
// file system.
var limits = []struct {
	name     string // as the shell's ulimit names it
	resource int
}{
	{"open files", unix.RLIMIT_NOFILE},
	{"processes", unix.RLIMIT_NPROC},
	{"locked memory", unix.RLIMIT_MEMLOCK},
}

// RaiseLimits raises this process's limits as far as permitted. It returns warnings about limits that remain too low. It must be called
// before children are started.
func RaiseLimits() (warnings []string, err error) {
	for _, l := range limits {
		var now unix.Rlimit
		if e := unix.Getrlimit(l.resource, &now); e != nil {
			err = errors.Join(err, fmt.Errorf("read the limit of %s: %w", l.name, e))
			continue
		}
		// Go raises the limit of open files at its own start, and gives children the value that it found. Only after an explicit call, even
		// with the same value, do children get the raised one (golang/go#46279).
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

// ForbidCore keeps the kernel from writing a core file of a process: those of hundreds of ranks fill a file system and take long. A limit
// of one byte also disables a program in core_pattern (core(5); fs/coredump.c).
func ForbidCore(pid int) error {
	var now unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &now)
	if err == nil {
		now.Cur = min(1, now.Max)
		err = unix.Prlimit(pid, unix.RLIMIT_CORE, &now, nil)
	}
	if err != nil {
		return fmt.Errorf("disable core files of process %d: %w", pid, err)
	}
	return nil
}
