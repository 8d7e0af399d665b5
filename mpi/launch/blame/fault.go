package blame

import (
	"strings"

	"ddpbatch/mpi/launch/stack"
)

// When a signal ends a program, Python's faulthandler writes the reason, the stack of each thread, and a long line of modules
// (Python/traceback.c, Modules/faulthandler.c). That comes after everything that the program itself, or C++ ("what():"), has
// printed about its end.

const (
	fatalPython = "Fatal Python error: "
	abortedLine = fatalPython + "Aborted" // abort(3), by a program that has printed the reason
	faultFrames = 8                       // the frames that are kept of the relevant thread
)

// shortenFaults keeps of each such dump the reason, and the innermost frames of the thread that failed, or else of the main thread.
func shortenFaults(lines []string) (kept []string) {
	for len(lines) > 0 {
		line := lines[0]
		lines = lines[1:]
		kept = append(kept, line)
		if !strings.HasPrefix(line, fatalPython) {
			continue
		}
		n, thread := readFault(lines)
		kept = append(kept, thread[:min(len(thread), 1+faultFrames)]...)
		lines = lines[n:]
	}
	return kept
}

// readFault returns the number of lines of a dump of faulthandler after its first line, and those of the relevant thread.
func readFault(lines []string) (n int, counts []string) {
	current := false
	var last []string
	for ; n < len(lines); n++ {
		line := lines[n]
		isThread, isCurrent := stack.IsPythonThread(line)
		switch {
		case isThread:
			if current {
				last = nil // threads after the current one are left out
				continue
			}
			last = []string{line}
			counts = last
			current = isCurrent
		case stack.IsPythonFrame(line):
			if last != nil {
				last = append(last, line)
				counts = last
			}
		case strings.HasPrefix(line, "Extension modules: "):
			return n + 1, counts
		case line != "":
			return n, counts
		}
	}
	return n, counts
}
