package proc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	maxControl = 64 << 10 // bytes of a control file of a cgroup, and of /proc/self/cgroup
	maxMounts  = 8 << 20  // bytes of /proc/self/mountinfo: some nodes have tens of thousands of mounts
	maxDepth   = 64       // cgroups in each other
	noLimit    = 1 << 62  // in version 1, no limit is the most that a 64-bit counter of pages holds
)

// memoryHierarchy is where the memory cgroups of this process are.
type memoryHierarchy struct {
	version int    // of the interface: 1 or 2 (cgroups(7))
	mount   string // where it is mounted, below the root of the file system
	own     string // this process's group, below the mount; "." is the mount
	path    string // the same as the kernel names it
}

// findMemoryHierarchy reads which hierarchy holds the memory controller: that of version 1 if it is there; nil: none.
func findMemoryHierarchy(root fs.FS) (*memoryHierarchy, error) {
	text, err := readFile(root, "proc/self/cgroup", maxControl)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	version, group := 0, ""
	for line := range strings.Lines(string(text)) { // number:controllers:path
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			return nil, fmt.Errorf("%.80q is no line of /proc/self/cgroup", line)
		}
		switch {
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			version, group = 1, fields[2]
		case fields[0] == "0" && fields[1] == "" && version == 0:
			version, group = 2, fields[2]
		}
	}
	if version == 0 {
		return nil, nil
	}
	return mountedAt(root, version, group)
}

// mountedAt finds where a group is in the file system. A container may see only a part of the hierarchy, or its own part under
// another name than the kernel's.
func mountedAt(root fs.FS, version int, group string) (*memoryHierarchy, error) {
	text, err := readFile(root, "proc/self/mountinfo", maxMounts)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) { // id parent device root mountpoint options tags... - type source options
		head, tail, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		left, right := strings.Fields(head), strings.Fields(tail)
		if !ok || len(left) < 6 || len(right) < 3 {
			return nil, fmt.Errorf("%.80q is no line of /proc/self/mountinfo", line)
		}
		isOne := right[0] == "cgroup" && slices.Contains(strings.Split(right[2], ","), "memory")
		if version == 1 && !isOne || version == 2 && right[0] != "cgroup2" {
			continue
		}
		h := &memoryHierarchy{version: version, own: ".", path: path.Clean(group)}
		h.mount = cmp.Or(strings.TrimPrefix(path.Clean(unescape(left[4])), "/"), ".")
		shown := strings.TrimSuffix(path.Clean(unescape(left[3])), "/") + "/" // what of the hierarchy is seen at the mount
		if below, ok := strings.CutPrefix(path.Clean(group), shown); ok && below != "" {
			h.own = below
		}
		if !fs.ValidPath(h.mount) || !fs.ValidPath(h.own) {
			return nil, fmt.Errorf("the cgroup %q cannot be below %q", group, left[4])
		}
		return h, nil
	}
	return nil, nil
}

// unescape undoes what the kernel does to spaces, tabs, ends of lines and backslashes in mountinfo (proc(5)).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// groups reads this process's group and those around it, up to the mount.
func (h *memoryHierarchy) groups(root fs.FS) ([]MemoryGroup, error) {
	var groups []MemoryGroup
	for own, name := h.own, h.path; len(groups) < maxDepth; own, name = path.Dir(own), path.Dir(name) {
		read := h.readOne
		if h.version == 2 {
			read = h.readTwo
		}
		g := MemoryGroup{Path: name}
		if err := read(root, path.Join(h.mount, own), &g); err != nil {
			return groups, err
		}
		groups = append(groups, g)
		if own == "." {
			break
		}
	}
	return groups, nil
}

func (h *memoryHierarchy) readTwo(root fs.FS, dir string, g *MemoryGroup) (err error) {
	if g.Kills, _, err = keyedNumber(root, path.Join(dir, "memory.events"), "oom_kill"); err != nil {
		return err
	}
	if g.Failures, _, err = keyedNumber(root, path.Join(dir, "memory.events"), "max"); err != nil {
		return err
	}
	if g.Limit, err = number(root, path.Join(dir, "memory.max")); err != nil {
		return err
	}
	g.Peak, err = number(root, path.Join(dir, "memory.peak")) // since Linux 5.19
	return err
}

func (h *memoryHierarchy) readOne(root fs.FS, dir string, g *MemoryGroup) (err error) {
	if g.Kills, _, err = keyedNumber(root, path.Join(dir, "memory.oom_control"), "oom_kill"); err != nil { // since Linux 4.13
		return err
	}
	if g.Failures, err = number(root, path.Join(dir, "memory.failcnt")); err != nil {
		return err
	}
	if g.Limit, err = number(root, path.Join(dir, "memory.limit_in_bytes")); err != nil {
		return err
	}
	g.Peak, err = number(root, path.Join(dir, "memory.max_usage_in_bytes"))
	return err
}

// number reads a file that holds one. 0: there is no such file, or no limit.
func number(root fs.FS, name string) (uint64, error) {
	text, err := readFile(root, name, maxControl)
	if absent(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	word := string(bytes.TrimSpace(text))
	if word == "max" {
		return 0, nil
	}
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s holds %.40q, which is no number", name, word)
	}
	if n >= noLimit {
		return 0, nil
	}
	return n, nil
}

// keyedNumber reads the number after a word at the beginning of a line.
func keyedNumber(root fs.FS, name, key string) (n uint64, found bool, err error) {
	text, err := readFile(root, name, maxControl)
	if absent(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != key {
			continue
		}
		if len(fields) != 2 {
			return 0, false, fmt.Errorf("%s has the line %.80q", name, line)
		}
		if n, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
			return 0, false, fmt.Errorf("%s has the line %.80q", name, line)
		}
		return n, true, nil
	}
	return 0, false, nil
}

// absent: the kernel has no such file, or not for this user.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

func readFile(root fs.FS, name string, limit int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return text, err
}
