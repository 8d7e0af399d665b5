package stack

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Process holds the stacks that one process of a rank has written.
type Process struct {
	PID, Parent int
	Go          bool // the threads are goroutines; otherwise Python's threads
	Threads     []Thread
}

// Standing is where a rank is, as far as its stacks and its flight record show.
type Standing struct {
	Call string `json:"call,omitempty"` // the call in which it waits for other ranks: "all_reduce"; "": none
	Line string `json:"line,omitempty"` // the line of the program: "train.py:31 in step"; "": not known
	Last string `json:"last,omitempty"` // the last call of the group that is over, according to a flight record

	// Helper is where a process or thread of the rank is that the rank waits for: "process 71 at data.py:12 in load"; "": not known.
	Helper string `json:"helper,omitempty"`
}

// Known reports whether the call or the line is known.
func (s Standing) Known() bool { return s.Call != "" || s.Line != "" }

// Stand finds where a rank is. Its processes may be in any order. A process that waits for other ranks takes precedence, and
// otherwise a parent does over its children.
func Stand(processes []Process) Standing {
	var first Standing
	for _, p := range parentsFirst(processes) {
		if p.forked() {
			continue
		}
		s := p.standing()
		if s.Call != "" {
			return s
		}
		if s.Known() && !first.Known() {
			first = s
			first.Helper = p.helper(processes)
		}
	}
	return first
}

// parentsFirst sorts processes by how many of their ancestors are among them.
func parentsFirst(processes []Process) []Process {
	parents := map[int]int{}
	for _, p := range processes {
		parents[p.PID] = p.Parent
	}
	depth := func(p Process) (n int) {
		for pid := p.PID; n < len(processes); n++ {
			parent, there := parents[pid]
			if !there {
				break
			}
			pid = parent
		}
		return n
	}
	ordered := slices.Clone(processes)
	slices.SortStableFunc(ordered, func(a, b Process) int { return cmp.Compare(depth(a), depth(b)) })
	return ordered
}

// standing is where the main thread is, or another thread that waits for other ranks.
func (p Process) standing() (s Standing) {
	threads := p.Threads
	if len(threads) == 0 {
		return s
	}
	if p.Go {
		s = goStanding(threads[0])
		for _, t := range threads {
			if t.Number == 1 {
				s = goStanding(t)
			}
		}
		for _, t := range threads {
			if s.Call != "" {
				break
			}
			if waiting := goStanding(t); waiting.Call != "" {
				s.Call, s.Line = waiting.Call, cmp.Or(s.Line, waiting.Line)
			}
		}
		return s
	}
	main := threads[len(threads)-1]
	s.Call = pythonCall(main.Frames)
	if f, ok := ownPython(main.Frames); ok {
		s.Line = f.place()
	}
	return s
}

func goStanding(t Thread) (s Standing) {
	s.Call = goCall(t.Frames)
	if f, ok := ownGo(t.Frames); ok {
		s.Line = f.place()
	}
	return s
}

// forked reports whether Python's multiprocessing has made the process, such as a data loader's.
func (p Process) forked() bool {
	if p.Go || len(p.Threads) == 0 {
		return false
	}
	_, forked := sinceFork(p.Threads[len(p.Threads)-1].Frames)
	return forked
}

// helper finds what a Python process's main thread waits for within its rank: the line at which a forked process runs the user's
// code, or at which another thread does.
func (p Process) helper(processes []Process) string {
	if p.Go || len(p.Threads) == 0 {
		return ""
	}
	main := len(p.Threads) - 1
	switch frames := p.Threads[main].Frames; {
	case waitsIn(frames, "/torch/utils/data/") || waitsIn(frames, "/multiprocessing/"):
		for _, child := range processes {
			if child.Parent != p.PID || !child.forked() {
				continue
			}
			own, _ := sinceFork(child.Threads[len(child.Threads)-1].Frames)
			if f, ok := ownPython(own); ok && !isPythonLibrary(f) {
				return fmt.Sprintf("process %d at %s", child.PID, f.place())
			}
		}
	case waitsIn(frames, "/threading.py") || waitsIn(frames, "/concurrent/futures/") || waitsIn(frames, "/queue.py"):
		for _, t := range p.Threads[:main] {
			if f, ok := ownPython(t.Frames); ok && !isPythonLibrary(f) {
				return "a thread at " + f.place()
			}
		}
	}
	return ""
}

// waitsIn reports whether one of the innermost frames, those of libraries, is in a file whose path contains the text.
func waitsIn(frames []Frame, file string) bool {
	for _, f := range frames {
		if !isPythonLibrary(f) {
			return false
		}
		if strings.Contains(f.File, file) {
			return true
		}
	}
	return false
}
