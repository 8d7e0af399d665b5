package stack

import (
	"path"
	"strconv"
)

const (
	maxThreads = 256 // the most threads that are read of a process
	maxFrames  = 256 // the most frames that are read of a thread
	maxName    = 200 // the most bytes that are kept of a function's or a file's name
)

// Thread is the stack of one thread, or of one goroutine.
type Thread struct {
	Number int     // the goroutine's number; 0: not a goroutine
	Frames []Frame // the innermost first
}

// Frame is a function call that has not returned.
type Frame struct {
	Function string
	File     string // as the program names it
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

// addFrame appends a frame to the last thread, if there is one and it has fewer than maxFrames.
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

// lastBytes is the end of a name, which is more telling than its beginning.
func lastBytes(name string) string { return name[max(0, len(name)-maxName):] }
