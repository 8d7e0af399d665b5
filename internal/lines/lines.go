package lines

import (
	"bytes"
	"cmp"
	"io"
)

const defaultMax = 64 << 10

// Writer passes on whole lines only, as many as possible in one Write to To. Only one goroutine may use a Writer. Several Writers may share
// To, which must then do its own locking.
type Writer struct {
	To io.Writer
	// Max limits how many bytes of an unfinished line are kept. A longer line is passed on in several pieces. 0 means 64 KiB.
	Max int
	// Label precedes each line that is passed on. It must not change after the first Write.
	Label string
	// Redraw makes a carriage return end a line too. A progress bar, which overwrites its own line, is then shown as it advances: each
	// state of it when the next one begins. It must not change after the first Write.
	Redraw  bool
	partial []byte // an unfinished line, with its label
	batch   []byte // complete lines with their labels; empty between two calls of Write
}

// Write always takes all of p. If To fails, Write returns that error and the bytes that To did not take are lost.
func (w *Writer) Write(p []byte) (int, error) {
	n := len(p)
	var err error
	if kept := len(w.partial); w.Redraw && n > 0 && p[0] != '\n' && kept > 0 && w.partial[kept-1] == '\r' {
		err = w.pass(nil) // the carriage return ended a line; it was not the first half of "\r\n"
	}
	if end := w.lastEnd(p); end > 0 {
		if e := w.pass(p[:end]); err == nil {
			err = e
		}
		p = p[end:]
	}
	if len(w.partial) == 0 && len(p) > 0 { // the first piece of a line
		w.partial = append(w.partial, w.Label...)
	}
	w.partial = append(w.partial, p...)
	if len(w.partial) >= cmp.Or(w.Max, defaultMax) {
		if e := w.Finish(); err == nil {
			err = e
		}
	}
	return n, err
}

// lastEnd returns the length of the finished lines in p. A carriage return at the end of p does not count: only the next byte shows whether
// it is part of "\r\n".
func (w *Writer) lastEnd(p []byte) int {
	end := bytes.LastIndexByte(p, '\n')
	if w.Redraw && len(p) > 0 {
		end = max(end, bytes.LastIndexByte(p[:len(p)-1], '\r'))
	}
	return end + 1
}

// firstEnd returns the length of the first line in p. p ends with the end of a line.
func (w *Writer) firstEnd(p []byte) int {
	end := bytes.IndexByte(p, '\n')
	if !w.Redraw {
		return end + 1
	}
	if back := bytes.IndexByte(p, '\r'); back >= 0 && (end < 0 || back < end-1) {
		end = back
	}
	return end + 1
}

// Finish ends an unfinished last line and passes it on.
func (w *Writer) Finish() error {
	if len(w.partial) == 0 {
		return nil
	}
	return w.pass([]byte{'\n'})
}

// pass writes the kept line and p in one Write. p is empty or ends with the end of a line. It copies p, so that the caller's buffer may be
// on its stack.
func (w *Writer) pass(p []byte) error {
	batch := append(w.batch[:0], w.partial...)
	begins := len(w.partial) == 0
	w.partial = w.partial[:0]
	for w.Label != "" && len(p) > 0 {
		if begins {
			batch = append(batch, w.Label...)
		}
		end := w.firstEnd(p)
		batch = append(batch, p[:end]...)
		p, begins = p[end:], true
	}
	batch = append(batch, p...)
	w.batch = nil
	if cap(batch) <= 4*cmp.Or(w.Max, defaultMax) { // many short lines with labels may need more than this; such a buffer is not kept
		w.batch = batch[:0]
	}
	_, err := w.To.Write(batch)
	return err
}
