package stack

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// pythonThread matches the line with which Python's faulthandler begins a thread. Python 3.14 adds the thread's name.
var pythonThread = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(Current thread|Thread) 0x[0-9a-f]+ (\[.*\] )?\(most recent call first\):$`)
})

var pythonFrame = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^  File "(.*)", line ([0-9]+|\?\?\?) in (.*)$`)
})

// IsPythonThread reports whether a line begins a thread in a dump of faulthandler. current reports whether it is the thread that failed.
func IsPythonThread(line string) (is, current bool) {
	return pythonThread().MatchString(line), strings.HasPrefix(line, "Current thread")
}

// IsPythonFrame reports whether a line is a frame of a thread in a dump of faulthandler.
func IsPythonFrame(line string) bool {
	return pythonFrame().MatchString(line) || line == "  <no Python frame>" || line == "  ..."
}

// Python reads what faulthandler has written of one process (Python/traceback.c, _Py_DumpTracebackThreads): a line for each thread,
// with a line below it for each frame. The youngest thread comes first, and so the main thread last. Other lines are skipped.
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

// libraryFolder matches the paths of Python's own files and of installed packages.
var libraryFolder = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/(site|dist)-packages/|/lib(64)?/python[0-9.]+/|^<frozen `)
})

// isPythonLibrary reports whether a frame is in a library's file rather than the user's.
func isPythonLibrary(f Frame) bool { return libraryFolder().MatchString(f.File) }

// waitingFiles are files of PyTorch and Horovod. A thread whose innermost frame is in one of them waits for other ranks.
var waitingFiles = []string{
	"/torch/distributed/distributed_c10d.py", "/torch/distributed/c10d_logger.py", "/torch/distributed/rendezvous.py",
	"/torch/distributed/utils.py", "/torch/distributed/nn/functional.py", "/torch/distributed/_functional_collectives.py",
	"/torch/nn/parallel/distributed.py", "/horovod/torch/mpi_ops.py",
}

// backwardFiles are files of PyTorch. A thread whose innermost frame is in one of them runs a backward pass, in which
// DistributedDataParallel averages gradients without a frame of its own.
var backwardFiles = []string{"/torch/autograd/__init__.py", "/torch/autograd/graph.py", "/torch/_tensor.py"}

// pythonCall is the call in which a thread waits for other ranks; "": none. It looks at the library frames that the innermost line
// of the user's code has called.
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
	for i := len(called) - 1; i >= 0; i-- { // the outermost call, which the user made: all_gather_object rather than all_gather
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

// ownPython returns the innermost frame in a file of the user's, or else the innermost one, and whether there is one.
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

// sinceFork returns the frames of a process since multiprocessing has forked it: its stack begins with its parent's frames.
func sinceFork(frames []Frame) (own []Frame, forked bool) {
	for i, f := range frames {
		if strings.HasSuffix(f.File, "/multiprocessing/process.py") && f.Function == "_bootstrap" {
			return frames[:i], true
		}
	}
	return frames, false
}
