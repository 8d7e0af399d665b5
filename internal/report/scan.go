package report

import (
	"encoding/json"
	"math"
	"strconv"
)

// fields receives the members of a JSON object that matter in a line of metrics.
type fields struct {
	number func(name []byte, value float64) // top-level numbers, including NaN and infinite ones
	text   func(name, value []byte)         // the text between the quotes
}

// scan reads a line of metrics.jsonl, usually one flat JSON object. It is several times as fast as encoding/json, because it does not build
// values that are not used. It accepts NaN, Infinity and -Infinity as numbers, as Python's json module writes them. It reports whether the
// line is an object; the functions may have been called even if it is not.
func (f *fields) scan(line []byte) bool {
	s := scanner{data: line}
	if !s.next('{') {
		return false
	}
	if s.next('}') {
		return s.atEnd()
	}
	for {
		name, ok := s.string()
		if !ok || !s.next(':') || !s.value(name, f) {
			return false
		}
		if s.next('}') {
			return s.atEnd()
		}
		if !s.next(',') {
			return false
		}
	}
}

type scanner struct {
	data []byte
	at   int
}

func (s *scanner) skipSpace() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// next skips c if that comes next, and reports whether it did.
func (s *scanner) next(c byte) bool {
	s.skipSpace()
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) atEnd() bool {
	s.skipSpace()
	return s.at == len(s.data)
}

// string reads a string, and decodes it if it contains escapes.
func (s *scanner) string() ([]byte, bool) {
	if !s.next('"') {
		return nil, false
	}
	begin, plain := s.at, true
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			if plain {
				return s.data[begin : s.at-1], true
			}
			var decoded string
			err := json.Unmarshal(s.data[begin-1:s.at], &decoded)
			return []byte(decoded), err == nil
		case c == '\\':
			plain = false
			s.at++
		case c < ' ' || c >= 0x80:
			plain = false
		}
	}
	return nil, false
}

// value skips a value, and passes it on if it is a number or a string.
func (s *scanner) value(name []byte, f *fields) bool {
	s.skipSpace()
	if s.at == len(s.data) {
		return false
	}
	switch c := s.data[s.at]; {
	case c == '"':
		value, ok := s.string()
		if ok && f.text != nil {
			f.text(name, value)
		}
		return ok
	case c == '-' || c >= '0' && c <= '9' || c == 'N' || c == 'I':
		value, ok := s.number()
		if ok {
			f.number(name, value)
		}
		return ok
	case c == '{' || c == '[':
		return s.nested()
	}
	rest := s.data[s.at:]
	return s.pass(rest, "null") || s.pass(rest, "true") || s.pass(rest, "false")
}

// pass skips a word if rest, the remaining input, begins with it.
func (s *scanner) pass(rest []byte, word string) bool {
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		return false
	}
	s.at += len(word)
	return true
}

// number reads a number in JSON's grammar, or one of Python's words. A number beyond the range of float64 becomes infinite.
func (s *scanner) number() (float64, bool) {
	switch rest := s.data[s.at:]; { // usually none of these
	case s.pass(rest, "NaN"):
		return math.NaN(), true
	case s.pass(rest, "Infinity"):
		return math.Inf(1), true
	case s.pass(rest, "-Infinity"):
		return math.Inf(-1), true
	}
	begin := s.at
	s.skip('-')
	if !s.skip('0') && !s.digits() {
		return 0, false
	}
	if s.skip('.') && !s.digits() {
		return 0, false
	}
	if s.skip('e') || s.skip('E') {
		if !s.skip('+') {
			s.skip('-')
		}
		if !s.digits() {
			return 0, false
		}
	}
	value, _ := strconv.ParseFloat(string(s.data[begin:s.at]), 64) // the grammar has been checked, so that only the range can be wrong
	return value, true
}

// skip is next after white space.
func (s *scanner) skip(c byte) bool {
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) digits() bool {
	begin := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at > begin
}

// nested skips an object or a list. An object or list with Python's NaN in it is not accepted.
func (s *scanner) nested() bool {
	begin, depth, quoted := s.at, 0, false
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case quoted && c == '\\':
			s.at++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				s.at++
				return json.Valid(s.data[begin:s.at])
			}
		}
	}
	return false
}
