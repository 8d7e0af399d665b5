package safetensors

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// str reads a string. The text is known to be UTF-8.
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

// escaped reads on after a string's first escape; out is what stands before it.
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

// escape reads one escape, or the two of a surrogate pair.
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
	return 0, s.errorf("\\%c is no escape", c)
}

// unicode reads what follows \u.
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
		return 0, s.errorf("\\u wants four hexadecimal digits")
	}
	s.at += 4
	return rune(n), nil
}

// appendString appends a JSON string as serde_json writes it: encoding/json would escape more.
func appendString(out []byte, text string) []byte {
	const short = "btn\x00fr" // the letters of \b to \r; there is none for \v
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
