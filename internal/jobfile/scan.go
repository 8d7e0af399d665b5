package jobfile

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// A scanner steps through TOML text. Every step moves forward or reports that it
// cannot, so every loop over them ends.
type scanner struct {
	src  string
	off  int
	deep int // offset of what is nested too deep; -1: nothing is
}

// peek returns the next byte, and 0 at the end.
func (s *scanner) peek() byte {
	if s.off < len(s.src) {
		return s.src[s.off]
	}
	return 0
}

// tooDeep notes and reports that nothing below p is read.
func (s *scanner) tooDeep(p *place) bool {
	if p.depth < maxDepth {
		return false
	}
	s.deep = s.off
	return true
}

func (s *scanner) skipSpace() {
	for c := s.peek(); c == ' ' || c == '\t'; c = s.peek() {
		s.off++
	}
}

// skipBlank skips white space, line ends and comments, and tells whether anything is left.
func (s *scanner) skipBlank() bool {
	for s.off < len(s.src) {
		switch s.src[s.off] {
		case ' ', '\t', '\r', '\n':
			s.off++
		case '#':
			s.skipTo("\n")
		default:
			return true
		}
	}
	return false
}

// skipTo goes to the next of the given bytes, or to the end.
func (s *scanner) skipTo(stops string) {
	if n := strings.IndexAny(s.src[s.off:], stops); n >= 0 {
		s.off += n
	} else {
		s.off = len(s.src)
	}
}

// skipScalar skips a number, a truth value, a date or a time: what ends at a comma, a bracket, a
// comment or the line's end. A date may hold a space.
func (s *scanner) skipScalar() bool {
	start := s.off
	s.skipTo(",]}#\r\n")
	return s.off > start
}

// skipString skips a string of any of TOML's four kinds. A string that does not end
// is not skipped.
func (s *scanner) skipString() bool {
	quote := s.src[s.off : s.off+1]
	multi := strings.Repeat(quote, 3)
	if !strings.HasPrefix(s.src[s.off:], multi) {
		return s.skipQuoted(quote)
	}
	s.off += len(multi)
	if !s.skipPast(multi, quote == `"`) {
		return false
	}
	// """a""""" ends in two quotes of its own.
	for range 2 {
		if strings.HasPrefix(s.src[s.off:], quote) {
			s.off++
		}
	}
	return true
}

// skipQuoted skips a string that ends on its own line.
func (s *scanner) skipQuoted(quote string) bool {
	start := s.off
	s.off++
	return s.skipPast(quote, quote == `"`) && !strings.Contains(s.src[start:s.off], "\n")
}

// skipPast goes past the next delim; with escapes, a backslash hides what follows it.
func (s *scanner) skipPast(delim string, escapes bool) bool {
	for s.off < len(s.src) {
		switch {
		case escapes && s.src[s.off] == '\\':
			s.off = min(s.off+2, len(s.src))
		case strings.HasPrefix(s.src[s.off:], delim):
			s.off += len(delim)
			return true
		default:
			s.off++
		}
	}
	return false
}

// keyPart reads one part of a key and gives its name.
func (s *scanner) keyPart() (name string, ok bool) {
	start := s.off
	if c := s.peek(); c == '"' || c == '\'' {
		if !s.skipQuoted(string(c)) {
			return "", false
		}
		return unquote(s.src[start:s.off])
	}
	s.skipTo(" \t\r\n.=[]{}\"'#,")
	return s.src[start:s.off], s.off > start
}

// unquote gives the name that a quoted key stands for.
func unquote(quoted string) (name string, ok bool) {
	if !strings.Contains(quoted, `\`) || quoted[0] == '\'' {
		return quoted[1 : len(quoted)-1], true
	}
	// A quoted key is written as a one-line string is; the library knows the escapes.
	var v struct{ Name string }
	_, err := toml.Decode("Name = "+quoted, &v)
	return v.Name, err == nil
}
