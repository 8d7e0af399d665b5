package blame

import (
	"strings"

	"ddpbatch/mpi/launch/stack"
)

// What Python's faulthandler writes when a signal ends a program (Python/traceback.c, Modules/faulthandler.c): what it died of, the stack
// of each of its threads, and a long line of modules. It comes after all that the program itself has said of its end, as C++ does
// ("what():").

const (
	fatalPython = "Fatal Python error: "
	abortedLine = fatalPython + "Aborted" // abort(3), by a program that has said why
	faultFrames = 8                       // of the thread that counts that are kept
)

// shortenFaults leaves of each such writing what it died of, and the innermost frames of the thread that did, or else of the main thread.
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

// readFault returns how many lines belong to what faulthandler writes below its first line, and those of the thread that counts.
func readFault(lines []string) (n int, counts []string) {
	current := false
	var last []string
	for ; n < len(lines); n++ {
		line := lines[n]
		isThread, isCurrent := stack.IsPythonThread(line)
		switch {
		case isThread:
			if current {
				last = nil // those after the current one are left out
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
