package manifest

import (
	"bytes"
	"encoding/json"
)

// writer writes JSON with line breaks where its caller wants them: a field to a line, for people
// who look.
type writer struct {
	buf   bytes.Buffer
	depth int
	some  bool // the open object or list has an item already
	err   error
}

func (w *writer) open(bracket string) {
	w.buf.WriteString(bracket)
	w.depth++
	w.some = false
}

func (w *writer) close(bracket string) {
	w.depth--
	if w.some {
		w.line()
	}
	w.buf.WriteString(bracket)
	w.some = true
}

func (w *writer) line() {
	w.buf.WriteByte('\n')
	for range w.depth {
		w.buf.WriteString("  ")
	}
}

func (w *writer) next() {
	if w.some {
		w.buf.WriteByte(',')
	}
	w.some = true
	w.line()
}

func (w *writer) key(name string) {
	w.next()
	w.value(name)
	w.buf.WriteString(": ")
}

func (w *writer) field(name string, v any) {
	w.key(name)
	w.value(v)
}

func (w *writer) item(v any) {
	w.next()
	w.value(v)
}

func (w *writer) value(v any) {
	enc := json.NewEncoder(&w.buf)
	enc.SetEscapeHTML(false) // values come back byte for byte
	if err := enc.Encode(v); err != nil {
		if w.err == nil {
			w.err = err
		}
		return
	}
	w.buf.Truncate(w.buf.Len() - 1) // Encode's line break
}
