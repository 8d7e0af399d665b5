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
	findSeldom = time.Second            // in the end
	findToMove = 100 * time.Millisecond // the same, of one that Slurm does not end before it was moved
	clientWait = 5 * time.Second        // for the client to see that its container has ended
)

// Contained is a child that is the client of a container runtime: another process of that runtime starts the one that counts, which is
// neither a descendant of the child nor in its group. It is found by its environment. Its methods are safe for concurrent use.
type Contained struct {
	*Process // the client
	pairs    []string
	join     bool // what is in the container is to be in this process's cgroups

	mu   sync.Mutex
	main *Relative // the process in the container that began first; nil: it has not been found yet

	signalled bool // see Signalled
}

// NewContained is for a client that was started, whose container's processes have all of the given NAME=value pairs in their environment.
// With join they are moved into the cgroups of this process, as soon as they are found ([JoinCgroups]).
func NewContained(client *Process, join bool, pairs ...string) *Contained {
	c := &Contained{Process: client, pairs: pairs, join: join}
	go c.find()
	return c
}

// find looks for the container's first process until it is there, or the client ends. It may overwrite its environment later.
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

// found looks once. Who has forked meanwhile is found by the second look, which comes at once.
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
		_ = JoinCgroups(pids...) // where this user cannot, the runtime has put them where it can
	}
	return true
}

// members are the processes in the container; none: it has not begun, or has ended.
func (c *Contained) members() []Relative {
	all, _ := WithVariables(c.pairs...) // where nothing can be told, the client is who is told
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

// isPause reports whether a process is the one by which Podman keeps the namespaces of a user who is not root. The first client on a node
// starts it, with its own environment, and it serves all later ones.
func isPause(s stat) bool { return s.name == "catatonit" || s.name == "podman pause" }

// Pid is the first process in the container, and the client as long as that is not known.
func (c *Contained) Pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.main == nil || c.main.Gone() {
		return c.Process.Pid()
	}
	return c.main.PID
}

// Signalled reports whether the client was signalled itself, since nothing ran in the container yet.
func (c *Contained) Signalled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signalled
}

// Signal sends sig to the processes in the container, and to the client where there are none. A client whose container was killed has some
// seconds to tidy up.
func (c *Contained) Signal(sig syscall.Signal) error {
	select {
	case <-c.Done(): // what removes the container may have its variables
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
		_ = r.Signal(unix.Signal(sig)) // it may just have become another user's
	}
	if sig == syscall.SIGKILL {
		time.AfterFunc(clientWait, func() { _ = c.Process.Signal(sig) })
	}
	return nil
}

// Warn is Process.Warn, of the processes in the container.
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
