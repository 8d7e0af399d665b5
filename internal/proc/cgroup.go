package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// JoinCgroups moves processes into the cgroups of this process, except those that are the roots of their hierarchies. Mostly only root may
// do that. Children that the processes already have stay where they are.
func JoinCgroups(pids ...int) error {
	own, err := ownCgroups(os.DirFS("/"))
	for _, dir := range own {
		for _, pid := range pids {
			e := os.WriteFile(path.Join("/", dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
			if e != nil && !errors.Is(e, unix.ESRCH) {
				err = errors.Join(err, fmt.Errorf("move process %d into this process's cgroup: %w", pid, e))
			}
		}
	}
	return err
}

// ownCgroups returns the directories of the cgroups that this process is in, relative to the root of the file system.
func ownCgroups(root fs.FS) ([]string, error) {
	text, err := readFile(root, "proc/self/cgroup", maxControl)
	if err != nil {
		return nil, fmt.Errorf("find this process's cgroups: %w", err)
	}
	var dirs []string
	for line := range strings.Lines(string(text)) { // number:controllers:path
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || fields[2] == "/" {
			continue
		}
		version, controller := 1, strings.Split(fields[1], ",")[0]
		if controller == "" {
			version = 2
		}
		h, err := mountedAt(root, version, controller, fields[2])
		if err != nil {
			return dirs, fmt.Errorf("find this process's cgroups: %w", err)
		}
		if h != nil && h.own != "." {
			dirs = append(dirs, path.Join(h.mount, h.own))
		}
	}
	return dirs, nil
}

// MaxPID returns the number of process IDs that the kernel has.
func MaxPID() (uint64, error) {
	text, err := readSome("/proc/sys/kernel/pid_max", 64)
	if err != nil {
		return 0, fmt.Errorf("read the largest process ID: %w", err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}
