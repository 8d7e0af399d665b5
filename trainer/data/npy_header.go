package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	npyMagic = "\x93NUMPY"

	// maxNPYHeader is what NumPy accepts from files that it does not trust.
	maxNPYHeader = 10000
	maxNPYDims   = 32 // NumPy's limit
)

// npyHeader is the dictionary before the data
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
type npyHeader struct {
	descr   string
	fortran bool
	shape   []int
}

// parseNPYHeader splits a file into header and data.
func parseNPYHeader(file []byte) (h npyHeader, data []byte, err error) {
	rest, ok := strings.CutPrefix(string(file[:min(len(file), 12)]), npyMagic)
	if !ok {
		return h, nil, errors.New("not a .npy file: it does not begin with \\x93NUMPY")
	}
	if len(rest) < 6 {
		return h, nil, errors.New("cut short in the header")
	}
	major, minor := rest[0], rest[1]
	start, size := 10, int64(binary.LittleEndian.Uint16(file[8:]))
	switch {
	case minor != 0 || major < 1 || major > 3:
		return h, nil, fmt.Errorf("version %d.%d of the .npy format is unknown", major, minor)
	case major > 1:
		start, size = 12, int64(binary.LittleEndian.Uint32(file[8:]))
	}
	if size > maxNPYHeader {
		return h, nil, fmt.Errorf("the header has %d bytes, at most %d are accepted", size, maxNPYHeader)
	}
	if int64(len(file)-start) < size {
		return h, nil, errors.New("cut short in the header")
	}
	data = file[start+int(size):]
	h, err = parseNPYDict(string(file[start : start+int(size)]))
	if err != nil {
		err = fmt.Errorf("the header %.200q: %w", file[start:start+int(size)], err)
	}
	return h, data, err
}

// npyDict parses the Python dictionary of a header, which uses only a small part of the syntax.
type npyDict struct{ rest string }

func parseNPYDict(s string) (h npyHeader, err error) {
	d := npyDict{s}
	if !d.take("{") {
		return h, errors.New("no { at the start")
	}
	seen := map[string]bool{}
	for !d.take("}") {
		key, ok := d.word()
		if !ok || !d.take(":") || seen[key] {
			return h, errors.New("want keys with values, each once")
		}
		seen[key] = true
		switch key {
		case "descr":
			h.descr, ok = d.word()
			if !ok {
				return h, errors.New("elements of several fields are not supported")
			}
		case "fortran_order":
			h.fortran = d.take("True")
			ok = h.fortran || d.take("False")
		case "shape":
			h.shape, ok = d.tuple()
		default:
			ok = false
		}
		if !ok {
			return h, fmt.Errorf("%.40q has a value that is not understood", key)
		}
		if !d.take(",") && !strings.HasPrefix(d.rest, "}") {
			return h, errors.New("no , or } after a value")
		}
	}
	if strings.Trim(d.rest, " \n") != "" || len(seen) != 3 {
		return h, errors.New("want descr, fortran_order and shape, and nothing else")
	}
	return h, nil
}

// take skips spaces, then s and the spaces after it, and reports whether s was there.
func (d *npyDict) take(s string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(d.rest, " "), s)
	if ok {
		d.rest = strings.TrimLeft(rest, " ")
	}
	return ok
}

// word parses a string without escapes.
func (d *npyDict) word() (string, bool) {
	quote := "'"
	if !d.take(quote) {
		if quote = `"`; !d.take(quote) {
			return "", false
		}
	}
	word, rest, ok := strings.Cut(d.rest, quote)
	d.rest = strings.TrimLeft(rest, " ")
	return word, ok && !strings.Contains(word, `\`)
}

// tuple parses sizes such as (), (3,) or (3, 4).
func (d *npyDict) tuple() (sizes []int, ok bool) {
	if !d.take("(") {
		return nil, false
	}
	for !d.take(")") {
		n := 0
		for n < len(d.rest) && d.rest[n] >= '0' && d.rest[n] <= '9' {
			n++
		}
		size, err := strconv.Atoi(d.rest[:n])
		if err != nil || len(sizes) == maxNPYDims {
			return nil, false
		}
		sizes = append(sizes, size)
		d.rest = d.rest[n:]
		if !d.take(",") && !strings.HasPrefix(strings.TrimLeft(d.rest, " "), ")") {
			return nil, false
		}
	}
	return sizes, true
}
