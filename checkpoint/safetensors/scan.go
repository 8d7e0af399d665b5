package safetensors

import (
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner parses the JSON of a header. It knows only the values that a header has and passes every key to the caller. encoding/json
// does not: it silently takes the last of two equal keys, accepts 1e3 as a length, and turns half a surrogate pair into another name.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) errorf(format string, args ...any) error {
	return invalidf("header, byte %d: %s", s.at, fmt.Sprintf(format, args...))
}

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c || s.at == len(s.text) {
		return s.errorf("%q is missing", c)
	}
	s.at++
	return nil
}

// end refuses what follows the header's object and is not padding.
func (s *scanner) end() error {
	if s.peek(); s.at < len(s.text) {
		return s.errorf("%q after the end of the object", s.text[s.at])
	}
	return nil
}

// object calls member with each key, to parse the value.
func (s *scanner) object(member func(key string) error) error {
	return s.list('{', '}', func() error {
		key, err := s.str()
		if err == nil {
			err = s.expect(':')
		}
		if err == nil {
			err = member(key)
		}
		return err
	})
}

// array calls element before each element, to parse it.
func (s *scanner) array(element func() error) error { return s.list('[', ']', element) }

// list parses what is between open and end, separated by commas.
func (s *scanner) list(open, end byte, item func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.peek() == end {
		s.at++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if s.peek() == end {
			s.at++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// number parses a whole number from 0, as JSON has it.
func (s *scanner) number() (uint64, error) {
	s.peek()
	first, n := s.at, uint64(0)
	for ; s.at < len(s.text) && s.text[s.at]-'0' <= 9; s.at++ {
		high, low := bits.Mul64(n, 10)
		sum, carry := bits.Add64(low, uint64(s.text[s.at]-'0'), 0)
		if high != 0 || carry != 0 {
			return 0, s.errorf("a number is larger than 2^64-1")
		}
		n = sum
	}
	switch {
	case s.at == first:
		return 0, s.errorf("a whole number from 0 is missing")
	case s.text[first] == '0' && s.at > first+1:
		return 0, s.errorf("a number begins with 0")
	}
	return n, nil // the caller refuses a fraction or an exponent as unexpected
}

// str parses a string. The text is known to be UTF-8.
func (s *scanner) str() (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	first := s.at
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return string(s.text[first : s.at-1]), nil
		case c == '\\':
			return s.escaped(append([]byte(nil), s.text[first:s.at]...))
		case c < ' ':
			return "", s.errorf("a control character in a string")
		}
	}
	return "", s.errorf("a string has no end")
}

// escaped continues after a string's first escape; out is the part before it.
func (s *scanner) escaped(out []byte) (string, error) {
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '"':
			s.at++
			return string(out), nil
		case c < ' ':
			return "", s.errorf("a control character in a string")
		case c != '\\':
			out = append(out, c)
			s.at++
			continue
		}
		r, err := s.escape()
		if err != nil {
			return "", err
		}
		out = utf8.AppendRune(out, r)
	}
	return "", s.errorf("a string has no end")
}

// escape parses one escape, or the two of a surrogate pair.
func (s *scanner) escape() (rune, error) {
	if s.at+1 >= len(s.text) {
		return 0, s.errorf("a string has no end")
	}
	c := s.text[s.at+1]
	s.at += 2
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return s.unicode()
	}
	return 0, s.errorf("\\%c is not an escape", c)
}

// unicode parses what follows \u.
func (s *scanner) unicode() (rune, error) {
	r, err := s.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if s.at+1 < len(s.text) && s.text[s.at] == '\\' && s.text[s.at+1] == 'u' {
		s.at += 2
		low, err := s.hex()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, nil
		}
	}
	return 0, s.errorf("half a surrogate pair")
}

func (s *scanner) hex() (rune, error) {
	if s.at+4 > len(s.text) {
		return 0, s.errorf("a string has no end")
	}
	n, err := strconv.ParseUint(string(s.text[s.at:s.at+4]), 16, 16)
	if err != nil {
		return 0, s.errorf("\\u must be followed by four hexadecimal digits")
	}
	s.at += 4
	return rune(n), nil
}

// appendString appends a JSON string as serde_json writes it: encoding/json would escape more.
func appendString(out []byte, text string) []byte {
	const short = "btn\x00fr" // the letters of \b to \r; \v has none
	const digits = "0123456789abcdef"
	out = append(out, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c >= '\b' && c <= '\r' && c != '\v':
			out = append(out, '\\', short[c-'\b'])
		case c < ' ':
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}
