package report

import (
	"encoding/json"
	"math"
	"strconv"
)

// fields are the members of a JSON object, as far as a line of metrics has a use for them.
type fields struct {
	number func(name []byte, value float64) // of the top level; NaN and infinite ones, too
	text   func(name, value []byte)         // what stands between the quotes
}

// scan reads a line of metrics.jsonl: one flat JSON object, most often. It is several times as fast as encoding/json, as it makes
// nothing of
// what nobody asks for. NaN, Infinity and -Infinity are taken for numbers, as Python's json module writes them. It reports whether the
// line is an object; the functions may have been called even where it is none.
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

// next passes over c, where that comes next.
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

// string is the text that comes next, decoded where that takes more than to leave out the quotes.
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

// value passes over the value that comes next, and hands it on where it is a number or a text.
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

// pass passes over a word, where rest, all that comes, begins with it.
func (s *scanner) pass(rest []byte, word string) bool {
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		return false
	}
	s.at += len(word)
	return true
}

// number reads a number by JSON's grammar, or one of Python's words. One that no float64 can hold is infinite.
func (s *scanner) number() (float64, bool) {
	switch rest := s.data[s.at:]; { // most often none
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
	value, _ := strconv.ParseFloat(string(s.data[begin:s.at]), 64) // by its grammar it can only be out of range
	return value, true
}

// skip is next without blanks before it.
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

// nested passes over an object or a list. Python's NaN within one makes it none.
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
