package processes

import (
	"bytes"
	"strings"
)

// Lines is one command's output: it passes whole lines on as they come, without the space around them.
type Lines struct {
	Hear func(line string)
	rest []byte // of a line without an end
}

func (l *Lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.rest = rest
		l.Hear(strings.TrimSpace(string(line)))
	}
}
