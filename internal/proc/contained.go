package proc

import (
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	findPause  = 50 * time.Millisecond  // between looks for the process in the container, at first
	findSeldom = time.Second            // the longest such pause
	findToMove = 100 * time.Millisecond // the longest pause if the process must be moved to other cgroups
	clientWait = 5 * time.Second        // for the client to notice that its container has ended
)

// Contained is a child that is the client of a container runtime. The process that counts runs in the container: another process of the
// runtime starts it, so that it is neither a descendant of the child nor in its group. It is found by its environment. The methods of a
// Contained are safe for concurrent use.
type Contained struct {
	*Process // the client
	pairs    []string
	join     bool // whether to move the processes in the container into this process's cgroups

	mu   sync.Mutex
	main *Relative // the process in the container that began first; nil until it is found

	signalled bool // see Signalled
}

// NewContained returns a Contained for a client that has been started. The container's processes are those that have all the given
// NAME=value pairs in their environment. If join is set, they are moved into the cgroups of this process as soon as they are found
// ([JoinCgroups]).
func NewContained(client *Process, join bool, pairs ...string) *Contained {
	c := &Contained{Process: client, pairs: pairs, join: join}
	go c.find()
	return c
}

// find looks for the container's first process until it is found or the client ends. It keeps what it has found, because the process may
// overwrite its environment later.
func (c *Contained) find() {
	longest := findSeldom
	if c.join {
		longest = findToMove
	}
	for pause := findPause; !c.found(); pause = min(2*pause, longest) {
		select {
		case <-time.After(pause):
		case <-c.Done():
			return
		}
	}
}

// found looks once. It moves the processes twice, because a process may have forked before it was moved.
func (c *Contained) found() bool {
	members := c.members()
	if len(members) == 0 {
		return false
	}
	for range 2 {
		if !c.join {
			break
		}
		var pids []int
		for _, r := range c.members() {
			pids = append(pids, r.PID)
		}
		_ = JoinCgroups(pids...) // if this user may not move them, they stay where the runtime has put them
	}
	return true
}

// members returns the processes in the container, or none if it has not begun or has ended.
func (c *Contained) members() []Relative {
	all, _ := WithVariables(c.pairs...) // if the processes cannot be read, signals go to the client
	all = slices.DeleteFunc(all, func(r Relative) bool { return r.seen.group == c.Process.Pid() || isPause(r.seen) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.main == nil {
		if len(all) > 0 {
			c.main = &all[0]
		}
		return all
	}
	if !c.main.Gone() && !slices.ContainsFunc(all, func(r Relative) bool { return r.PID == c.main.PID }) {
		all = append([]Relative{*c.main}, all...)
	}
	return all
}

// isPause reports whether a process is Podman's pause process, which keeps the namespaces of a user other than root. The first client on a
// node starts it, with the client's environment, and it serves all later clients.
func isPause(s stat) bool { return s.name == "catatonit" || s.name == "podman pause" }

// Pid returns the ID of the first process in the container, or that of the client if there is none.
func (c *Contained) Pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.main == nil || c.main.Gone() {
		return c.Process.Pid()
	}
	return c.main.PID
}

// Began reports whether a process was found in the container.
func (c *Contained) Began() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.main != nil
}

// Signalled reports whether a signal went to the client itself, because nothing ran in the container yet.
func (c *Contained) Signalled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signalled
}

// Signal sends sig to the processes in the container, or to the client if there are none. After KILL the client has some seconds to clean
// up.
func (c *Contained) Signal(sig syscall.Signal) error {
	select {
	case <-c.Done(): // the process that removes the container may have its variables
		return nil
	default:
	}
	members := c.members()
	if len(members) == 0 {
		c.mu.Lock()
		c.signalled = c.signalled || c.main == nil
		c.mu.Unlock()
		return c.Process.Signal(sig)
	}
	for _, r := range members {
		_ = r.Signal(unix.Signal(sig)) // the process may just have changed its user
	}
	if sig == syscall.SIGKILL {
		time.AfterFunc(clientWait, func() { _ = c.Process.Signal(sig) })
	}
	return nil
}

// Warn does what Process.Warn does, for the processes in the container.
func (c *Contained) Warn(sig syscall.Signal) (sent int, err error) {
	select {
	case <-c.Done():
		return 0, nil
	default:
	}
	var all []stat
	for _, r := range c.members() {
		all = append(all, r.seen)
	}
	return warn(all, sig)
}
