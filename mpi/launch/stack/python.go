package stack

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// pythonThread is the line that begins a thread in what Python's faulthandler writes. Python 3.14 adds the thread's name.
var pythonThread = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(Current thread|Thread) 0x[0-9a-f]+ (\[.*\] )?\(most recent call first\):$`)
})

var pythonFrame = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^  File "(.*)", line ([0-9]+|\?\?\?) in (.*)$`)
})

// IsPythonThread reports whether a line begins a thread in what faulthandler writes; current: it is the one that died.
func IsPythonThread(line string) (is, current bool) {
	return pythonThread().MatchString(line), strings.HasPrefix(line, "Current thread")
}

// IsPythonFrame reports whether a line is one of those that faulthandler writes below a thread's.
func IsPythonFrame(line string) bool {
	return pythonFrame().MatchString(line) || line == "  <no Python frame>" || line == "  ..."
}

// Python reads what faulthandler has written of one process (Python/traceback.c, _Py_DumpTracebackThreads): a line for each thread, the
// youngest first and so the main thread last, and below it one for each frame. Other lines are passed over.
func Python(text string) []Thread {
	var threads []Thread
	within := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch m := pythonFrame().FindStringSubmatch(line); {
		case pythonThread().MatchString(line):
			within = len(threads) < maxThreads
			if within {
				threads = append(threads, Thread{})
			}
		case m != nil && within:
			number, _ := strconv.Atoi(m[2]) // "???" is 0
			addFrame(threads, Frame{Function: m[3], File: m[1], Line: number})
		case strings.TrimSpace(line) == "":
			within = false
		}
	}
	return threads
}

// libraryFolder is in the paths of Python's own files and of packages that are installed.
var libraryFolder = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/(site|dist)-packages/|/lib(64)?/python[0-9.]+/|^<frozen `)
})

// isPythonLibrary reports whether a frame is of no file of the user's own.
func isPythonLibrary(f Frame) bool { return libraryFolder().MatchString(f.File) }

// waitingFiles are those of PyTorch and Horovod whose innermost frame waits for other ranks.
var waitingFiles = []string{
	"/torch/distributed/distributed_c10d.py", "/torch/distributed/c10d_logger.py", "/torch/distributed/rendezvous.py",
	"/torch/distributed/utils.py", "/torch/distributed/nn/functional.py", "/torch/distributed/_functional_collectives.py",
	"/torch/nn/parallel/distributed.py", "/horovod/torch/mpi_ops.py",
}

// backwardFiles are those whose innermost frame is in a backward pass, in which DistributedDataParallel averages gradients. That has no
// frame of its own.
var backwardFiles = []string{"/torch/autograd/__init__.py", "/torch/autograd/graph.py", "/torch/_tensor.py"}

// pythonCall is the call in which a thread waits for other ranks; "": none. It is looked for in the frames of libraries that the user's
// innermost own line has called.
func pythonCall(frames []Frame) string {
	var called []Frame
	for _, f := range frames {
		if !isPythonLibrary(f) {
			break
		}
		called = append(called, f)
	}
	switch {
	case len(called) == 0:
		return ""
	case isOf(called[0], backwardFiles):
		return "backward"
	case !isOf(called[0], waitingFiles):
		return ""
	}
	for i := len(called) - 1; i >= 0; i-- { // what the user called, rather than what that calls: all_gather_object rather than all_gather
		f := called[i]
		if strings.HasSuffix(f.File, waitingFiles[0]) && !strings.HasPrefix(f.Function, "_") {
			return f.Function
		}
	}
	if isOf(called[0], []string{"/torch/nn/parallel/distributed.py", "/torch/distributed/utils.py"}) {
		return "DistributedDataParallel"
	}
	return called[0].Function
}

func isOf(f Frame, files []string) bool {
	for _, file := range files {
		if strings.HasSuffix(f.File, file) {
			return true
		}
	}
	return false
}

// ownPython is the innermost frame of the user's own file, or else the innermost one; false: there is none.
func ownPython(frames []Frame) (Frame, bool) {
	for _, f := range frames {
		if !isPythonLibrary(f) {
			return f, true
		}
	}
	if len(frames) == 0 {
		return Frame{}, false
	}
	return frames[0], true
}

// sinceFork are the frames of a process that multiprocessing has forked: its stack begins with its parent's.
func sinceFork(frames []Frame) (own []Frame, forked bool) {
	for i, f := range frames {
		if strings.HasSuffix(f.File, "/multiprocessing/process.py") && f.Function == "_bootstrap" {
			return frames[:i], true
		}
	}
	return frames, false
}
