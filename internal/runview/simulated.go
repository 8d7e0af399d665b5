package runview

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/vfs"
)

// simulating reports whether the process that simulates run still lives. The pretend job ID is its process ID, followed by the index for an
// array element.
func simulating(run *rundir.Dir, id string) bool {
	fd, ok := OpenSimulation(run, id)
	if ok {
		unix.Close(fd)
	}
	return ok
}

// OpenSimulation opens the process that simulates run (pidfd_open(2)). ok is false if it has ended. The process is recognized by the job's
// log, which it keeps open, because its process ID may have been reused. A process of another user does not count: any user who can read
// the log can keep it open.
func OpenSimulation(run *rundir.Dir, id string) (fd int, ok bool) {
	number, _, _ := strings.Cut(id, "_")
	pid, err := strconv.Atoi(number)
	if err != nil || run.Spec().Kind != "simulate" {
		return 0, false
	}
	if fd, err = unix.PidfdOpen(pid, 0); err != nil {
		return 0, false
	}
	if info, err := os.Stat(filepath.Join("/proc", number)); err != nil || vfs.Owner(info) != run.Owner() {
		unix.Close(fd)
		return 0, false
	}
	root, err := filepath.EvalSymlinks(run.Whole().Path())
	log := filepath.Join(root, "slurm-"+id)                              // and for an array: those of its elements
	files, _ := filepath.Glob(filepath.Join("/proc", number, "fd", "*")) // the pattern is valid
	for _, file := range files {
		if target, linkErr := os.Readlink(file); err == nil && linkErr == nil &&
			(target == log+".log" || strings.HasPrefix(target, log+"_")) {
			return fd, true
		}
	}
	unix.Close(fd)
	return 0, false
}
