package safetensors

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"ddpbatch/internal/text"
)

const (
	maxHeader   = 100_000_000 // bytes: MAX_HEADER_SIZE of the format's own reader
	maxRank     = 64          // dimensions of a shape
	maxTensors  = 1 << 20     // a checkpoint has as many
	maxFields   = 1 << 16     // of metadata
	metadataKey = "__metadata__"
)

// ErrInvalid reports that the bytes are not a valid safetensors file. The error that wraps it says what is wrong.
var ErrInvalid = errors.New("not a valid safetensors file")

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Info describes one tensor of a header.
type Info struct {
	Name  string
	Type  string // the format's name: F32, BF16, ...
	DType string // the checkpoint's name: float32, bfloat16, ...; empty if it has none
	Shape []int  // empty: a scalar; a dimension may be 0
	Start int64  // offset of its first byte from the end of the header
	Bytes int64
}

// Metadata are the fields about a file, in the file's order. It is nil if the file has none, and empty if the file has an empty object.
type Metadata []Field

// Field is one field of the metadata.
type Field struct{ Key, Value string }

// Get returns the value of a key, or an empty string if the key does not exist.
func (m Metadata) Get(key string) string {
	for _, f := range m {
		if f.Key == key {
			return f.Value
		}
	}
	return ""
}

// parseHeader parses the text of a header of a file with size bytes of data. It returns the tensors in the order of their data.
func parseHeader(text []byte, size int64) ([]Info, Metadata, error) {
	if !utf8.Valid(text) {
		return nil, nil, invalidf("the header is not UTF-8")
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return nil, nil, invalidf("the header does not begin with {")
	}
	// Each tensor has this word. Otherwise it can only be the name of a tensor, or in metadata: no string can hold it with both its quotes.
	if n := bytes.Count(text, []byte(`"data_offsets"`)); n > maxTensors+2*maxFields+1 {
		return nil, nil, invalidf("more than %d tensors", maxTensors)
	}
	s := &scanner{text: text}
	var infos []Info
	var metadata Metadata
	seen := map[string]bool{}
	err := s.object(func(key string) (err error) {
		if seen[key] {
			return s.errorf("%s occurs twice", quoted(key))
		}
		seen[key] = true
		if key == metadataKey {
			metadata, err = s.metadata()
			return err
		}
		if len(infos) == maxTensors {
			return s.errorf("more than %d tensors", maxTensors)
		}
		info, err := s.tensorEntry(key)
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
			return invalidf("tensor %s begins at byte %d of the data, but the one before it ends at %d", quoted(t.Name), t.Start, at)
		}
		at += t.Bytes // cannot overflow: tensorEntry has checked that the end fits
	}
	if at != size {
		return invalidf("the tensors have %d bytes, but the data has %d", at, size)
	}
	return nil
}

// metadata parses an object of strings.
func (s *scanner) metadata() (Metadata, error) {
	m, seen := Metadata{}, map[string]bool{}
	err := s.object(func(key string) error {
		if seen[key] {
			return s.errorf("metadata %s occurs twice", quoted(key))
		}
		if len(m) == maxFields {
			return s.errorf("more than %d metadata fields", maxFields)
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

// tensorEntry parses the entry of a tensor, and checks that it has exactly the bytes of its shape.
func (s *scanner) tensorEntry(name string) (Info, error) {
	t := Info{Name: name}
	offsets := make([]uint64, 0, 2)
	seen := make([]string, 0, 3)
	err := s.object(func(key string) (err error) {
		if slices.Contains(seen, key) {
			return s.errorf("%s occurs twice", quoted(key))
		}
		seen = append(seen, key)
		switch key {
		case "dtype":
			t.Type, err = s.str()
		case "shape":
			t.Shape, err = s.shape()
		case "data_offsets":
			err = s.array(func() error {
				n, err := s.number()
				if len(offsets) == 2 || n > math.MaxInt64 {
					return s.errorf("data_offsets must be two offsets in a file")
				}
				offsets = append(offsets, n)
				return err
			})
		default:
			err = s.errorf("%s is not one of dtype, shape and data_offsets", quoted(key))
		}
		return err
	})
	if err == nil && (len(seen) != 3 || len(offsets) != 2) {
		err = invalidf("it does not have a dtype, a shape and two data_offsets")
	}
	if err == nil {
		err = t.setPosition(offsets[0], offsets[1])
	}
	if err != nil {
		return t, fmt.Errorf("tensor %s: %w", quoted(name), err)
	}
	return t, nil
}

func (s *scanner) shape() ([]int, error) {
	shape := []int{}
	return shape, s.array(func() error {
		n, err := s.number()
		switch {
		case err != nil:
			return err
		case n > math.MaxInt:
			return s.errorf("a dimension of %d is too large", n)
		case len(shape) == maxRank:
			return s.errorf("more than %d dimensions", maxRank)
		}
		shape = append(shape, int(n))
		return nil
	})
}

// setPosition checks type, shape and position of a tensor against each other, and sets them.
func (t *Info) setPosition(first, end uint64) error {
	which := typeNamed(t.Type)
	if which < 0 {
		return invalidf("dtype %s is unknown", quoted(t.Type))
	}
	size, err := byteSize(dtypes[which], t.Shape)
	if err != nil {
		return err
	}
	if end < first || end-first != size {
		return invalidf("bytes %d to %d do not hold shape %v of %s, which takes %d bytes", first, end, t.Shape, t.Type, size)
	}
	t.Type = dtypes[which].name // the table's string, so that a tensor needs no copy of its own
	t.DType, t.Start, t.Bytes = dtypes[which].ours, int64(first), int64(size)
	return nil
}

// byteSize returns the size of a shape. As in the format's own reader, dimensions are multiplied from the first to the last, and a product
// that overflows is an error even if a later dimension is 0.
func byteSize(t dtype, shape []int) (uint64, error) {
	n := uint64(1)
	for _, dim := range append(slices.Clone(shape), int(t.bits)) {
		high, low := bits.Mul64(n, uint64(dim))
		if high != 0 {
			return 0, invalidf("shape %v of %s is too large", shape, t.name)
		}
		n = low
	}
	if n%8 != 0 {
		return 0, invalidf("shape %v of %s ends within a byte", shape, t.name)
	}
	return n / 8, nil
}

// dtype is a type of elements. The format's own writer sorts by the index in its list, which has the same order as dtypes.
type dtype struct {
	name string // in the file
	bits uint64 // of an element
	ours string // a checkpoint's name for it; empty if it has none
}

// dtypes are the format's types, by ascending alignment (enum Dtype of safetensors/src/tensor.rs).
var dtypes = [...]dtype{
	{"BOOL", 8, "bool"},
	{"F4", 4, ""},
	{"F6_E2M3", 6, ""},
	{"F6_E3M2", 6, ""},
	{"U8", 8, "uint8"},
	{"I8", 8, "int8"},
	{"F8_E5M2", 8, "float8_e5m2"},
	{"F8_E4M3", 8, "float8_e4m3fn"},
	{"F8_E8M0", 8, ""},
	{"F8_E4M3FNUZ", 8, ""},
	{"F8_E5M2FNUZ", 8, ""},
	{"I16", 16, "int16"},
	{"U16", 16, "uint16"},
	{"F16", 16, "float16"},
	{"BF16", 16, "bfloat16"},
	{"I32", 32, "int32"},
	{"U32", 32, "uint32"},
	{"F32", 32, "float32"},
	{"C64", 64, "complex64"},
	{"F64", 64, "float64"},
	{"I64", 64, "int64"},
	{"U64", 64, "uint64"},
}

// typeNamed returns the index in dtypes of a type by the file's name, or -1 if the name is unknown.
func typeNamed(name string) int {
	return slices.IndexFunc(dtypes[:], func(t dtype) bool { return t.name == name })
}

// typeOf returns the index in dtypes of a type by the checkpoint's name, or -1 if the format does not have it.
func typeOf(ours string) int {
	return slices.IndexFunc(dtypes[:], func(t dtype) bool { return t.ours == ours && ours != "" })
}

// maxQuoted is about how much of a name an error shows: files may have names of any length.
const maxQuoted = 80

// quoted returns a name for an error.
func quoted(name string) string { return text.Quoted(name, maxQuoted) }
