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

	"ddpbatch/internal/text"
)

// Memory holds the kernel's counts of processes killed for lack of memory, in the memory cgroups of this process and on the whole machine.
type Memory struct {
	Groups []MemoryGroup // this process's own cgroup, its parent, and so on; empty if there is none
	// MachineKills counts all kills by the out-of-memory killer since the machine started, of any process (/proc/vmstat, since Linux 4.13);
	// -1 if the kernel does not report it.
	MachineKills int64
}

// MemoryGroup is one memory cgroup.
type MemoryGroup struct {
	Path string // as in /proc/self/cgroup
	// Kills counts processes killed because the group had no memory left. In version 2 it includes the groups below (memory.events), in
	// version 1 it does not (memory.oom_control).
	Kills    uint64
	Failures uint64 // how often usage reached the limit (memory.events max; memory.failcnt)
	Limit    uint64 // bytes; 0: none
	Peak     uint64 // the highest usage in bytes; 0 if the kernel does not report it
}

// ReadMemory takes a snapshot, for [Memory.Since]. It reads proc and sys below root, usually os.DirFS("/").
func ReadMemory(root fs.FS) (Memory, error) {
	m := Memory{MachineKills: -1}
	hierarchy, err := findMemoryHierarchy(root)
	if err == nil && hierarchy != nil {
		m.Groups, err = hierarchy.groups(root)
	}
	if err != nil {
		err = fmt.Errorf("read the memory cgroup of this process: %w", err)
	}
	kills, found, e := number(root, "proc/vmstat", "oom_kill")
	if e != nil {
		return m, errors.Join(err, e)
	}
	if found {
		m.MachineKills = int64(min(kills, 1<<62))
	}
	return m, err
}

// Evidence says how likely it is that a process was killed for lack of memory.
type Evidence int

const (
	NoEvidence   Evidence = iota
	MachineShort          // some process on the machine was killed for lack of memory
	JobShort              // a process was killed in a cgroup that encloses ours and has a limit
	GroupShort            // a process was killed in our own cgroup; if no enclosing cgroup has a limit, the machine ran out of memory
)

// OutOfMemory describes what happened between two snapshots.
type OutOfMemory struct {
	Evidence Evidence
	Kills    uint64 // processes
	Group    string // path of the cgroup that reached its limit; "" means the machine
	Limit    uint64 // bytes; 0 if unknown
	Peak     uint64 // bytes; 0 if unknown
}

// Likely reports whether a child that was killed by KILL in that time was probably killed by the out-of-memory killer.
func (o OutOfMemory) Likely() bool { return o.Evidence >= JobShort }

// String describes the evidence in words. It returns "" if there is none.
func (o OutOfMemory) String() string {
	limit := ""
	if o.Limit > 0 {
		limit = " of " + text.Bytes(o.Limit)
	}
	if o.Peak > 0 {
		limit += fmt.Sprintf(" (the most that was used: %s)", text.Bytes(o.Peak))
	}
	killed := "the kernel killed a process"
	if o.Kills != 1 {
		killed = fmt.Sprintf("the kernel killed %d processes", o.Kills)
	}
	switch {
	case o.Evidence == GroupShort && o.Group == "":
		return killed + " of this job because the machine ran short of memory: no limit is set for the job's"
	case o.Evidence == GroupShort:
		return killed + " because the job's memory limit" + limit + " was reached"
	case o.Evidence == JobShort:
		return killed + " of this job or beside it because the memory limit" + limit + " of " + o.Group + " was reached"
	case o.Evidence == MachineShort:
		return killed + " on this node for lack of memory, perhaps of another job"
	}
	return ""
}

// Since compares two snapshots of this process. The kernel counts a kill before the process ends (mm/oom_kill.c), so a snapshot taken after
// a child was waited for includes its kill. A count that fell, because a cgroup was created anew, is not evidence.
func (m Memory) Since(before Memory) OutOfMemory {
	var o OutOfMemory
	for i, group := range m.Groups {
		kills := grown(group, before, func(g MemoryGroup) uint64 { return g.Kills })
		if kills == 0 || i > 0 && group.Limit == 0 {
			continue
		}
		o.Evidence, o.Kills = JobShort, kills
		if i == 0 {
			o.Evidence = GroupShort
		}
		if limited, ok := m.limiting(before, i); ok {
			o.Group, o.Limit, o.Peak = limited.Path, limited.Limit, limited.Peak
		}
		return o
	}
	if before.MachineKills >= 0 && m.MachineKills > before.MachineKills {
		o.Evidence, o.Kills = MachineShort, uint64(m.MachineKills-before.MachineKills)
	}
	return o
}

// limiting returns the group whose limit was reached, among the group with index first and those that enclose it: the smallest limit among
// those reached since before, or else among all. It returns false if none has a limit.
func (m Memory) limiting(before Memory, first int) (MemoryGroup, bool) {
	limited := slices.DeleteFunc(slices.Clone(m.Groups[first:]), func(g MemoryGroup) bool { return g.Limit == 0 })
	reached := slices.DeleteFunc(slices.Clone(limited), func(g MemoryGroup) bool {
		return grown(g, before, func(g MemoryGroup) uint64 { return g.Failures }) == 0
	})
	less := func(a, b MemoryGroup) int { return cmp.Compare(a.Limit, b.Limit) }
	switch {
	case len(reached) > 0:
		return slices.MinFunc(reached, less), true
	case len(limited) > 0:
		return slices.MinFunc(limited, less), true
	}
	return MemoryGroup{}, false
}

// grown returns by how much a count of a group has increased.
func grown(now MemoryGroup, before Memory, count func(MemoryGroup) uint64) uint64 {
	for _, was := range before.Groups {
		if was.Path == now.Path {
			return max(count(now), count(was)) - count(was)
		}
	}
	return 0
}

const (
	maxControl = 64 << 10 // bytes of a control file of a cgroup, and of /proc/self/cgroup
	maxMounts  = 8 << 20  // bytes of /proc/self/mountinfo: some nodes have tens of thousands of mounts
	maxDepth   = 64       // levels of nested cgroups
	noLimit    = 1 << 62  // in version 1, an absent limit is the largest value of a 64-bit counter of pages
)

// memoryHierarchy describes where the memory cgroups of this process are.
type memoryHierarchy struct {
	version int    // of the interface: 1 or 2 (cgroups(7))
	mount   string // the mount point, relative to the root of the file system
	own     string // this process's group, relative to the mount point; "." is the mount point
	path    string // the group's path in the kernel's words
}

// findMemoryHierarchy finds the hierarchy with the memory controller, preferring version 1. It returns nil if there is none.
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
			return nil, fmt.Errorf("invalid line in /proc/self/cgroup: %.80q", line)
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
	return mountedAt(root, version, "memory", group)
}

// mountedAt finds where a group is in the file system. A container may see only a part of the hierarchy, or see its own part under another
// name than the kernel's.
func mountedAt(root fs.FS, version int, controller, group string) (*memoryHierarchy, error) {
	text, err := readFile(root, "proc/self/mountinfo", maxMounts)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) { // id parent device root mountpoint options tags... - type source options
		head, tail, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		left, right := strings.Fields(head), strings.Fields(tail)
		if !ok || len(left) < 6 || len(right) < 3 {
			return nil, fmt.Errorf("invalid line in /proc/self/mountinfo: %.80q", line)
		}
		isOne := right[0] == "cgroup" && slices.Contains(strings.Split(right[2], ","), controller)
		if version == 1 && !isOne || version == 2 && right[0] != "cgroup2" {
			continue
		}
		h := &memoryHierarchy{version: version, own: ".", path: path.Clean(group)}
		h.mount = cmp.Or(strings.TrimPrefix(path.Clean(unescape(left[4])), "/"), ".")
		shown := strings.TrimSuffix(path.Clean(unescape(left[3])), "/") + "/" // the part visible at the mount point
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

// unescape undoes the kernel's encoding of spaces, tabs, newlines and backslashes in mountinfo (proc(5)).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// groups reads this process's group and those that enclose it, up to the mount point.
func (h *memoryHierarchy) groups(root fs.FS) ([]MemoryGroup, error) {
	var groups []MemoryGroup
	for own, name := h.own, h.path; len(groups) < maxDepth; own, name = path.Dir(own), path.Dir(name) {
		g := MemoryGroup{Path: name}
		for i, to := range []*uint64{&g.Kills, &g.Failures, &g.Limit, &g.Peak} {
			var err error
			if *to, _, err = number(root, path.Join(h.mount, own, memoryFiles[h.version][i].name),
				memoryFiles[h.version][i].key); err != nil {
				return groups, err
			}
		}
		groups = append(groups, g)
		if own == "." {
			break
		}
	}
	return groups, nil
}

// memoryFiles gives, for each version of the interface, where a group's Kills, Failures, Limit and Peak are: the number after key at the
// beginning of a line, or, without a key, the only number in the file.
var memoryFiles = map[int][4]struct{ name, key string }{
	1: {{"memory.oom_control", "oom_kill"} /* since Linux 4.13 */, {"memory.failcnt", ""}, {"memory.limit_in_bytes", ""},
		{"memory.max_usage_in_bytes", ""}},
	2: {{"memory.events", "oom_kill"}, {"memory.events", "max"}, {"memory.max", ""}, {"memory.peak", ""} /* since Linux 5.19 */},
}

// number reads the number after key at the beginning of a line, or the only number in the file if key is empty. found is false if the file
// does not exist or holds no limit.
func number(root fs.FS, name, key string) (n uint64, found bool, err error) {
	text, err := readFile(root, name, maxControl)
	if absent(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	if key == "" {
		word := string(bytes.TrimSpace(text))
		n, err := strconv.ParseUint(word, 10, 64)
		switch {
		case word == "max", err == nil && n >= noLimit:
			return 0, false, nil
		case err != nil:
			return 0, false, fmt.Errorf("%s holds %.40q, which is not a number", name, word)
		}
		return n, true, nil
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != key {
			continue
		}
		if n, err = strconv.ParseUint(fields[len(fields)-1], 10, 64); err != nil || len(fields) != 2 {
			return 0, false, fmt.Errorf("%s has an invalid line: %.80q", name, line)
		}
		return n, true, nil
	}
	return 0, false, nil
}

// absent reports whether an error means that the kernel does not have a file, or does not show it to this user.
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
