package blame

import (
	"regexp"
	"strings"
	"sync"
)

// traceback is one Python traceback: the exception, and what was said of it.
type traceback struct {
	exception []string // the line "Type: text" and the lines of text that follow it
	main      bool     // it begins in the main program: it ended the process, and was not only logged
	aside     bool     // of an exception that the interpreter ignored, or that ended but a thread
	chained   bool     // it came of the one before: raised while that was handled, or from it
}

const (
	tracebackHead  = "Traceback (most recent call last):"
	exceptionLines = 8 // of an exception's text that are looked at
)

// rankLabel is what newer PyTorch puts before each line of a traceback.
var rankLabel = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\[rank[0-9]+\]:[ ]?`) })

// exceptionLine is how an exception is printed: its type, and its text where it has one (traceback's format_exception_only).
var exceptionLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning)(:|$)`)
})

// tracebacks finds the tracebacks in a rank's last lines, in order. One whose exception is cut off is left out.
func tracebacks(lines []string) []traceback {
	var found []traceback
	var link, aside bool // what stood between the last traceback and this line
	for i := 0; i < len(lines); i++ {
		line := rankLabel().ReplaceAllString(lines[i], "")
		switch {
		case strings.HasPrefix(line, tracebackHead):
			t := traceback{chained: link && len(found) > 0, aside: aside}
			i = t.read(lines, i+1)
			if len(t.exception) > 0 {
				found = append(found, t)
			}
			link, aside = false, false
		case isLink(line):
			link = true
		case isAside(line):
			aside = true
		}
	}
	return found
}

// isLink tells whether the traceback after this line came of the one before it.
func isLink(line string) bool {
	return strings.HasPrefix(line, "During handling of the above exception") || strings.HasPrefix(line, "The above exception was the direct cause")
}

// isAside tells whether the traceback after this line did not end the process.
func isAside(line string) bool {
	return strings.HasPrefix(line, "Exception ignored in") || strings.HasPrefix(line, "Exception in thread")
}

// read takes a traceback from the line after its head on, and returns the index of its last line.
func (t *traceback) read(lines []string, at int) int {
	frames := true
	for i := at; i < len(lines); i++ {
		line := rankLabel().ReplaceAllString(lines[i], "")
		indented := strings.HasPrefix(line, " ")
		switch {
		case frames && indented:
			if i == at {
				t.main = strings.Contains(line, ", in <module>") || strings.Contains(line, ", in _run_module_as_main")
			}
		case strings.HasPrefix(line, tracebackHead), isLink(line), isAside(line):
			return i - 1
		case frames && strings.TrimSpace(line) == "": // cut off
			return i
		default:
			frames = false
			if len(t.exception) == exceptionLines {
				return i - 1
			}
			t.exception = append(t.exception, line)
		}
	}
	return len(lines)
}

// chainOf is the chain of exceptions that ended the process, oldest first: that of the main program, or else the last one.
func chainOf(all []traceback) []traceback {
	var chains [][]traceback
	for _, t := range all {
		if t.chained && len(chains) > 0 {
			chains[len(chains)-1] = append(chains[len(chains)-1], t)
			continue
		}
		chains = append(chains, []traceback{t})
	}
	for _, fits := range []func(traceback) bool{
		func(t traceback) bool { return t.main },
		func(t traceback) bool { return !t.aside },
		func(traceback) bool { return true },
	} {
		for i := len(chains) - 1; i >= 0; i-- {
			for _, t := range chains[i] {
				if fits(t) {
					return chains[i]
				}
			}
		}
	}
	return nil
}
