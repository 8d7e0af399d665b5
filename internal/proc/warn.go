package proc

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Warn sends sig to those processes of the child's group alone that have a handler for it, as it would kill the others: to the leader, or
// else, on every way down from it, to the first that has one. So the program behind a shell hears of it, and the
// helpers of a program that has a handler do not. It returns how many were told; 0: none has a handler.
func (p *Process) Warn(sig syscall.Signal) (told int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0, nil
	}
	all, err := stats()
	if err != nil {
		return 0, err
	}
	members := map[int]stat{}
	below := map[int][]stat{}
	for _, s := range all {
		if s.group == p.Pid() && !s.zombie() {
			members[s.pid] = s
		}
	}
	var next []stat
	for _, s := range members {
		if _, ok := members[s.parent]; ok {
			below[s.parent] = append(below[s.parent], s)
		} else {
			next = append(next, s) // the leader, and those whose parents have ended
		}
	}
	for len(next) > 0 {
		s := next[0]
		next = next[1:]
		handles, e := Handles(s.pid, sig)
		if e != nil {
			continue // gone
		}
		if !handles {
			next = append(next, below[s.pid]...)
			continue
		}
		h, ok := openHandle(s, func(now stat) bool { return now.group == s.group })
		if !ok {
			continue
		}
		if e := h.signal(unix.Signal(sig)); e != nil {
			err = errors.Join(err, e)
		} else {
			told++
		}
		h.close()
	}
	return told, err
}
