package proc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
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
	kills, found, e := keyedNumber(root, "proc/vmstat", "oom_kill")
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
		limit = " of " + sizeText(o.Limit)
	}
	if o.Peak > 0 {
		limit += fmt.Sprintf(" (the most that was used: %s)", sizeText(o.Peak))
	}
	if o.Evidence == GroupShort && o.Group == "" {
		return fmt.Sprintf("the kernel killed %s of this job because the machine ran short of memory: no limit is set for the job's", processes(o.Kills))
	}
	switch o.Evidence {
	case GroupShort:
		return fmt.Sprintf("the kernel killed %s because the job's memory limit%s was reached", processes(o.Kills), limit)
	case JobShort:
		return fmt.Sprintf("the kernel killed %s of this job or beside it because the memory limit%s of %s was reached", processes(o.Kills), limit, o.Group)
	case MachineShort:
		return fmt.Sprintf("the kernel killed %s on this node for want of memory; whose it was is not known", processes(o.Kills))
	}
	return ""
}

func processes(n uint64) string {
	if n == 1 {
		return "a process"
	}
	return fmt.Sprintf("%d processes", n)
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
