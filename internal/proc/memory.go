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

// Memory is what the kernel has counted so far of processes that it killed for want of memory, in the memory cgroups that this process is
// in, and on the whole machine.
type Memory struct {
	Groups []MemoryGroup // this process's own, its parent, and so on; none where there is no such cgroup
	// MachineKills is all that the out-of-memory killer has done since the machine started, to anybody (/proc/vmstat, since
	// Linux 4.13); -1: the kernel does not tell.
	MachineKills int64
}

// MemoryGroup is one memory cgroup.
type MemoryGroup struct {
	Path string // as in /proc/self/cgroup
	// Kills are processes that were killed as the group had no more memory: in version 2 those of groups below are counted too
	// (memory.events), in version 1 those of the group alone (memory.oom_control).
	Kills    uint64
	Failures uint64 // how often it was at its limit (memory.events max; memory.failcnt)
	Limit    uint64 // bytes; 0: none
	Peak     uint64 // bytes, the most it has used; 0: the kernel does not tell
}

// ReadMemory takes a snapshot, for [Memory.Since]. root is the file system whose proc and sys it reads: os.DirFS("/").
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

// Evidence is how much speaks for a process having been killed for want of memory.
type Evidence int

const (
	NoEvidence   Evidence = iota
	MachineShort          // the machine had no more memory, and killed some process
	JobShort              // some process of a cgroup around ours was killed, which has a limit
	GroupShort            // a process of our own cgroup was killed; without a limit around it, as the machine had no more memory
)

// OutOfMemory is what happened between two snapshots.
type OutOfMemory struct {
	Evidence Evidence
	Kills    uint64 // processes
	Group    string // path of the cgroup that was at its limit; "": the machine
	Limit    uint64 // bytes; 0: unknown
	Peak     uint64 // bytes; 0: unknown
}

// Likely tells whether a child that got KILL in that time was probably killed by the out-of-memory killer.
func (o OutOfMemory) Likely() bool { return o.Evidence >= JobShort }

// String is a sentence for people; "" where there is no evidence.
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
		return killed + " on this node for want of memory; whose it was is not known"
	}
	return ""
}

// Since compares two snapshots of this process. The kernel counts a kill before the process dies of it (mm/oom_kill.c), so that a
// snapshot taken after a child was waited for has its kill. Counts that fell, as those of a cgroup that was made anew, are no evidence.
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

// limiting is the group, among that of index first and those around it, whose limit was reached: the least limit of those that were
// reached since, or else of all; false where none has a limit.
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

// grown is by how much a count of a group is more than before.
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
	return mountedAt(root, version, "memory", group)
}

// mountedAt finds where a group is in the file system. A container may see only a part of the hierarchy, or its own part under
// another name than the kernel's.
func mountedAt(root fs.FS, version int, controller, group string) (*memoryHierarchy, error) {
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
		isOne := right[0] == "cgroup" && slices.Contains(strings.Split(right[2], ","), controller)
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

// memoryFiles say where a group's Kills, Failures, Limit and Peak are, by the version of the interface: the number after key at the
// beginning of a line, or where there is none the file's only one.
var memoryFiles = map[int][4]struct{ name, key string }{
	1: {{"memory.oom_control", "oom_kill"} /* since Linux 4.13 */, {"memory.failcnt", ""}, {"memory.limit_in_bytes", ""},
		{"memory.max_usage_in_bytes", ""}},
	2: {{"memory.events", "oom_kill"}, {"memory.events", "max"}, {"memory.max", ""}, {"memory.peak", ""} /* since Linux 5.19 */},
}

// number reads the number after a word at the beginning of a line, or without a key that of a file with nothing else. 0: there is no such
// file, or no limit.
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
			return 0, false, fmt.Errorf("%s holds %.40q, which is no number", name, word)
		}
		return n, true, nil
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != key {
			continue
		}
		if n, err = strconv.ParseUint(fields[len(fields)-1], 10, 64); err != nil || len(fields) != 2 {
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
