package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// formatName distinguishes a manifest from any other JSON.
const formatName = "ddpbatch checkpoint"

// Start is how the manifests of all versions begin.
const Start = "{\n  \"format\": \"" + formatName + "\""

// Encode returns the bytes of MANIFEST.json, in the newest version. It returns an error for a manifest that could not be
// read back. The pieces of a tensor may be in any order; m is not changed. Equal
// manifests give equal bytes.
func (m *Manifest) Encode() ([]byte, error) {
	data, _, err := m.EncodeAndParse()
	return data, err
}

// EncodeAndParse returns what Encode returns, and the result of parsing it.
func (m *Manifest) EncodeAndParse() ([]byte, *Manifest, error) {
	if m.Version != 0 && m.Version != Version {
		return nil, nil, fmt.Errorf("a manifest of version %d cannot be written", m.Version)
	}
	if !utf8.ValidString(m.Run) || !utf8.ValidString(m.Program) { // encoding/json would replace the wrong bytes
		return nil, nil, errors.New("the names of run and program are not UTF-8")
	}
	for _, t := range m.Tensors {
		if err := CheckTensorName(t.Name); err != nil {
			return nil, nil, err // here too, for the same reason
		}
	}
	w := writer{}
	w.open("{")
	w.field("format", formatName)
	w.field("version", Version)
	w.field("run", m.Run)
	w.field("attempt", m.Attempt)
	w.field("step", m.Step)
	w.field("world", m.World)
	w.field("created", m.Created)
	w.field("program", m.Program)
	if m.Base != nil {
		w.field("base", m.Base)
	}
	writeMap(&w, "values", m.Values)
	writeMap(&w, "metrics", m.Metrics)
	w.key("tensors")
	w.open("[")
	for _, t := range m.Tensors {
		w.item(encodeTensor(t))
	}
	w.close("]")
	w.key("shards")
	w.open("[")
	for _, s := range m.Shards {
		w.item(s)
	}
	w.close("]")
	if w.err != nil {
		return nil, nil, w.err
	}
	data := seal(w.buf.Bytes())
	parsed, err := Parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("the manifest would not be readable: %w", err)
	}
	return data, parsed, nil
}

func writeMap[V any](w *writer, name string, values map[string]V) {
	w.key(name)
	w.open("{")
	for _, key := range slices.Sorted(maps.Keys(values)) {
		w.field(key, values[key])
	}
	w.close("}")
}

func encodeTensor(t Tensor) tensorFields {
	pieces := slices.SortedFunc(slices.Values(t.Pieces), func(a, b Piece) int { return cmp.Compare(a.Start, b.Start) })
	return tensorFields{
		Name: t.Name, DType: t.DType,
		Shape:  append(shape{}, t.Shape...), // a scalar's is [], not null
		Pieces: append(pieceList{}, pieces...),
	}
}

// writer writes JSON with line breaks at the places that its caller chooses: one field a line, for
// people who read the file.
type writer struct {
	buf   bytes.Buffer
	depth int
	some  bool // the open object or list already has an item
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
