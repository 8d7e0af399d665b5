package watch

import (
	"fmt"
	"strings"

	"ddpbatch/internal/proc"
)

// Place is where a worker is held up, as far as the kernel tells: evidence of who waits, and of who is waited for.
type Place struct {
	Stopped bool   `json:"stopped,omitempty"` // by SIGSTOP or a debugger
	Held    bool   `json:"held,omitempty"`    // by a disk, a file server or a device, which no signal ends
	Sleeps  bool   `json:"sleeps,omitempty"`  // until some time has passed
	Text    string `json:"text"`              // for people: "in futex"
}

// Where tells of a child that leads its group where its first thread is, or, where it is a shell that waits for its only child,
// where that one's is.
func Where(leader int) Place {
	relatives, err := proc.Relatives(leader)
	if err != nil || len(relatives) == 0 {
		return Place{Text: "it has ended"}
	}
	r := relatives[0]
	for { // a parent is listed once, so this ends
		t, _, _, err := readThread(fmt.Sprintf("/proc/%d/task/%d/", r.PID, r.PID))
		if err != nil {
			return Place{Text: "it has ended"}
		}
		child, only := onlyChild(relatives, r.PID)
		if only && t.waitsForChild() {
			r = child
			continue
		}
		return t.place()
	}
}

// waitsForChild tells whether the thread waits for the end of a child, or, as shells do, for the signal that tells of it.
func (t thread) waitsForChild() bool {
	switch t.call {
	case "wait4", "waitid", "rt_sigsuspend":
		return true
	}
	return t.waits == "do_wait"
}

func onlyChild(relatives []proc.Relative, parent int) (child proc.Relative, only bool) {
	for _, r := range relatives {
		if r.Parent == parent && r.PID != parent {
			if only {
				return child, false
			}
			child, only = r, true
		}
	}
	return child, only
}

func (t thread) place() Place {
	p := Place{Text: "waiting"}
	if t.call != "" {
		p.Text = "in " + t.call
	}
	switch {
	case strings.HasPrefix(t.state, "T"):
		p.Stopped, p.Text = true, "stopped by a signal (SIGSTOP)"
	case strings.HasPrefix(t.state, "t"):
		p.Stopped, p.Text = true, "stopped by a debugger"
	case strings.HasPrefix(t.state, "D"):
		p.Held, p.Text = true, "held by a disk, a file server or a device, "+p.Text
	case strings.HasPrefix(t.state, "R"):
		p.Text = "running"
	case t.call == "nanosleep", t.call == "clock_nanosleep", strings.Contains(t.waits, "nanosleep"):
		p.Sleeps, p.Text = true, "asleep"
	}
	return p
}
