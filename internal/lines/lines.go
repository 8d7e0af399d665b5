package lines

import (
	"bytes"
	"cmp"
	"io"
)

const defaultMax = 64 << 10

// Writer passes on whole lines only, as many as there are in one Write. It belongs to
// one goroutine; To is for those that share it to lock.
type Writer struct {
	To io.Writer
	// Max bounds what is kept of a line whose end has not come: a longer one is passed on as several. 0: 64 KiB.
	Max int
	// Label begins each line that is passed on. It must not change once there was a Write.
	Label string
	// Redraw lets a carriage return end a line, too, so that a progress bar, which writes over its line, is seen while it goes on: each
	// state of it as the next begins. It must not change either.
	Redraw  bool
	partial []byte // a line whose end has not come, with its label
	batch   []byte // lines with their labels; empty between two writes
}

// Write takes all of p, even where To fails: that error is for the caller to know, and what To did
// not take is lost.
func (w *Writer) Write(p []byte) (int, error) {
	n := len(p)
	var err error
	if kept := len(w.partial); w.Redraw && n > 0 && p[0] != '\n' && kept > 0 && w.partial[kept-1] == '\r' {
		err = w.pass(nil) // it was a line's end, and not the first half of one
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

// lastEnd is the length of the lines in p that have ended. What a carriage return at p's end is, the next byte tells.
func (w *Writer) lastEnd(p []byte) int {
	end := bytes.LastIndexByte(p, '\n')
	if w.Redraw && len(p) > 0 {
		end = max(end, bytes.LastIndexByte(p[:len(p)-1], '\r'))
	}
	return end + 1
}

// firstEnd is the length of the first line in p, which ends in one's end.
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

// Finish passes on a last line that has no end, with one.
func (w *Writer) Finish() error {
	if len(w.partial) == 0 {
		return nil
	}
	return w.pass([]byte{'\n'})
}

// pass passes on what is kept and p, which ends in a line's end where there is any of it, in one write. p is copied, so that a caller's
// buffer may be on its stack.
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
	if cap(batch) <= 4*cmp.Or(w.Max, defaultMax) { // many short lines with labels may be more, once
		w.batch = batch[:0]
	}
	_, err := w.To.Write(batch)
	return err
}
