package proc

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Relative is a child, a member of its group, or a descendant of one of those.
type Relative struct {
	PID, Parent int
	Name        string // its command's, as in ps(1)
	State       byte   // as in Usage
	seen        stat
}

// Relatives finds a child that leads its group, and all that belongs to it: the child first, the others by process id.
// Those that have ended are left out.
func Relatives(leader int) ([]Relative, error) {
	all, err := stats()
	if err != nil {
		return nil, fmt.Errorf("look at the processes: %w", err)
	}
	of := familyOf([]int{leader}, all)
	var found []Relative
	for _, s := range all {
		if _, ok := of(s); ok && !s.zombie() {
			found = append(found, Relative{PID: s.pid, Parent: s.parent, Name: s.name, State: s.state, seen: s})
		}
	}
	slices.SortStableFunc(found, func(a, b Relative) int {
		switch {
		case a.PID == leader:
			return -1
		case b.PID == leader:
			return 1
		}
		return a.PID - b.PID
	})
	return found, nil
}

// Signal sends sig to the process, and to no other that has its number by now. That it is gone is no error.
func (r Relative) Signal(sig unix.Signal) error {
	h, ok := openHandle(r.seen, func(stat) bool { return true })
	if !ok {
		return nil
	}
	defer h.close()
	return h.signal(sig)
}

// Gone tells whether the process has ended.
func (r Relative) Gone() bool { return (&handle{stat: r.seen}).gone() }

// familyOf tells of a process to which of the children it belongs, by the index of that.
func familyOf(leaders []int, all []stat) func(stat) (int, bool) {
	index, parents := map[int]int{}, map[int]int{}
	for i, pid := range leaders {
		index[pid] = i
	}
	owner := maps.Clone(index) // of every process; -1: none
	for _, s := range all {
		parents[s.pid] = s.parent
		_, leads := index[s.pid]
		if i, ok := index[s.group]; ok && !leads {
			owner[s.pid] = i
		}
	}
	var of func(pid int) int
	of = func(pid int) int {
		if i, ok := owner[pid]; ok {
			return i
		}
		owner[pid] = -1 // also where parents run in a circle, as those of processes that were read at different times may
		if parent := parents[pid]; parent > 0 {
			owner[pid] = of(parent)
		}
		return owner[pid]
	}
	return func(s stat) (int, bool) { i := of(s.pid); return i, i >= 0 }
}
