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
	Max  int
	part []byte // a line whose end has not come
}

// Write takes all of p, even where To fails: that error is for the caller to know, and what To did
// not take is lost.
func (w *Writer) Write(p []byte) (int, error) {
	n := len(p)
	var err error
	if end := bytes.LastIndexByte(p, '\n') + 1; end > 0 {
		w.part = append(w.part, p[:end]...)
		err = w.pass()
		p = p[end:]
	}
	w.part = append(w.part, p...)
	if len(w.part) >= cmp.Or(w.Max, defaultMax) {
		if e := w.Finish(); err == nil {
			err = e
		}
	}
	return n, err
}

// Finish passes on a last line that has no end, with one.
func (w *Writer) Finish() error {
	if len(w.part) == 0 {
		return nil
	}
	w.part = append(w.part, '\n')
	return w.pass()
}

func (w *Writer) pass() error {
	_, err := w.To.Write(w.part)
	w.part = w.part[:0]
	return err
}
