package launch

import (
	"bytes"
	"io"
	"sync"
)

// maxLine bounds what is kept of a line whose end has not come: a longer one
// is shown as several.
const maxLine = 64 << 10

// console is one of the agent's own streams. All consoles of an agent share a
// lock, since both may be the same terminal.
type console struct {
	mu *sync.Mutex
	w  io.Writer
}

func newConsoles(stdout, stderr io.Writer) (out, errs console) {
	var mu sync.Mutex
	return console{&mu, stdout}, console{&mu, stderr}
}

// lineWriter hands one stream of one worker to a console, whole lines only, so
// that the lines of several workers do not mix. It belongs to one goroutine.
type lineWriter struct {
	to  console
	buf []byte // a line whose end has not come
}

// Write never fails for a console that does: a closed terminal must not end the
// workers. The error is for the caller to know.
func (l *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	var err error
	if end := bytes.LastIndexByte(p, '\n') + 1; end > 0 {
		l.buf = append(l.buf, p[:end]...)
		err = l.show()
		p = p[end:]
	}
	l.buf = append(l.buf, p...)
	if len(l.buf) >= maxLine {
		if e := l.Finish(); err == nil {
			err = e
		}
	}
	return n, err
}

// Finish completes the last line.
func (l *lineWriter) Finish() error {
	if len(l.buf) == 0 {
		return nil
	}
	l.buf = append(l.buf, '\n')
	return l.show()
}

// show writes what is there, whole lines, in one call.
func (l *lineWriter) show() error {
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	_, err := l.to.w.Write(l.buf)
	l.buf = l.buf[:0]
	return err
}
