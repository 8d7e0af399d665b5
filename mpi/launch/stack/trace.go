package stack

import (
	"path"
	"strconv"
)

const (
	maxThreads = 256 // of a process that are read
	maxFrames  = 256 // of a thread
	maxName    = 200 // bytes of a function's or a file's name that are kept
)

// Thread is the stack of one thread, or of one goroutine.
type Thread struct {
	Number int     // a goroutine's; 0: another's
	Frames []Frame // the innermost first
}

// Frame is a call that has not returned.
type Frame struct {
	Function string
	File     string // as its program names it
	Line     int
}

// place is the frame's line for a person: "train.py:31 in step".
func (f Frame) place() string {
	text := path.Base(f.File) + ":" + strconv.Itoa(f.Line)
	if f.Function != "" && f.Function != "<module>" {
		text += " in " + f.Function
	}
	return text
}

// addFrame appends a frame to the last thread, unless there is none, or too much.
func addFrame(threads []Thread, f Frame) {
	if len(threads) == 0 {
		return
	}
	t := &threads[len(threads)-1]
	if len(t.Frames) == maxFrames {
		return
	}
	f.Function, f.File = lastBytes(f.Function), lastBytes(f.File)
	t.Frames = append(t.Frames, f)
}

// lastBytes is the end of a name, which says more of it than its beginning.
func lastBytes(name string) string { return name[max(0, len(name)-maxName):] }
