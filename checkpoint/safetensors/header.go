package safetensors

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxHeader   = 100_000_000 // bytes: MAX_HEADER_SIZE of the format's own reader
	maxRank     = 64          // dimensions of a shape
	maxTensors  = 1 << 20     // as many as a checkpoint has
	maxFields   = 1 << 16     // of metadata
	metadataKey = "__metadata__"
)

// ErrInvalid: the bytes are no valid safetensors file. The error that is it says what is wrong.
var ErrInvalid = errors.New("no valid safetensors file")

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Info is what a header says of one tensor.
type Info struct {
	Name  string
	Type  string // the format's name: F32, BF16, ...
	DType string // the checkpoint's name: float32, bfloat16, ...; empty where it has none
	Shape []int  // empty: a scalar; a dimension may be 0
	Start int64  // of its first byte, from the end of the header
	Bytes int64
}

// Metadata are facts about a file, in the file's order. nil: the file has none; empty: it has an empty object.
type Metadata []Field

// Field is one of them.
type Field struct{ Key, Value string }

// Get is the value of a key; empty where there is none.
func (m Metadata) Get(key string) string {
	for _, f := range m {
		if f.Key == key {
			return f.Value
		}
	}
	return ""
}

// parseHeader reads the text of a header, whose data has size bytes. The tensors come in the order of their data.
func parseHeader(text []byte, size int64) ([]Info, Metadata, error) {
	if !utf8.Valid(text) {
		return nil, nil, invalidf("the header is no UTF-8")
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return nil, nil, invalidf("the header does not begin with {")
	}
	// Each tensor has this word, which otherwise is the name of one, or a field of metadata: no string can hold it with both its quotes.
	if n := bytes.Count(text, []byte(`"data_offsets"`)); n > maxTensors+2*maxFields+1 {
		return nil, nil, invalidf("more than %d tensors", maxTensors)
	}
	s := &scanner{text: text}
	var infos []Info
	var metadata Metadata
	seen := map[string]bool{}
	err := s.object(func(key string) (err error) {
		if seen[key] {
			return s.errorf("%s stands there twice", quoted(key))
		}
		seen[key] = true
		if key == metadataKey {
			metadata, err = s.metadata()
			return err
		}
		if len(infos) == maxTensors {
			return s.errorf("more than %d tensors", maxTensors)
		}
		info, err := s.entry(key)
		infos = append(infos, info)
		return err
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(infos, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Bytes, b.Bytes), strings.Compare(a.Name, b.Name))
	})
	return infos, metadata, checkCover(infos, size)
}

// checkCover refuses tensors that do not cover size bytes of data, one after the other.
func checkCover(infos []Info, size int64) error {
	at := int64(0)
	for _, t := range infos {
		if t.Start != at {
			return invalidf("tensor %s begins at byte %d of the data, the one before it ends at %d", quoted(t.Name), t.Start, at)
		}
		at += t.Bytes // no overflow: entry has checked that the end fits
	}
	if at != size {
		return invalidf("the tensors have %d bytes, the data %d", at, size)
	}
	return nil
}

// metadata reads an object of strings.
func (s *scanner) metadata() (Metadata, error) {
	m, seen := Metadata{}, map[string]bool{}
	err := s.object(func(key string) error {
		if seen[key] {
			return s.errorf("metadata %s stands there twice", quoted(key))
		}
		if len(m) == maxFields {
			return s.errorf("more than %d metadata", maxFields)
		}
		seen[key] = true
		value, err := s.str()
		if err != nil {
			return fmt.Errorf("metadata %s: %w", quoted(key), err)
		}
		m = append(m, Field{key, value})
		return nil
	})
	return m, err
}
