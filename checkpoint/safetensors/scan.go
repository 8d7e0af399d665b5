package safetensors

import (
	"fmt"
	"math/bits"
)

// scanner reads the JSON of a header. It knows just the values that a header has and lets the caller see every key, which encoding/json does
// not: there the last of two equal keys wins in silence, 1e3 is a length, and half a surrogate pair becomes another name.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) errorf(format string, args ...any) error {
	return invalidf("header, byte %d: %s", s.at, fmt.Sprintf(format, args...))
}

// peek is the next byte that is no white space; 0: the end.
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

// end refuses what follows the header's object and is no padding.
func (s *scanner) end() error {
	if s.peek(); s.at < len(s.text) {
		return s.errorf("%q after the end of the object", s.text[s.at])
	}
	return nil
}

// object calls member with each key, to read the value.
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

// array calls element before each element, to read it.
func (s *scanner) array(element func() error) error { return s.list('[', ']', element) }

// list reads what stands between open and end, with commas between.
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

// number reads a whole number from 0, as JSON writes it.
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
	return n, nil // a fraction or an exponent is what the caller does not expect next
}
