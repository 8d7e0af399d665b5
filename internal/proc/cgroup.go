package proc

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// OwnCgroup is this process's memory cgroup as a runtime names it: below the mount, with a slash at its beginning. "": it is the mount, or
// there is none. root is as for [ReadMemory].
func OwnCgroup(root fs.FS) (string, error) {
	hierarchy, err := findMemoryHierarchy(root)
	switch {
	case err != nil:
		return "", fmt.Errorf("find this process's cgroup: %w", err)
	case hierarchy == nil || hierarchy.own == ".":
		return "", nil
	}
	return path.Join("/", hierarchy.own), nil
}

// MaxPID is how many processes the kernel has numbers for.
func MaxPID() (uint64, error) {
	text, err := readSome("/proc/sys/kernel/pid_max", 64)
	if err != nil {
		return 0, fmt.Errorf("ask for the largest process id: %w", err)
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}
