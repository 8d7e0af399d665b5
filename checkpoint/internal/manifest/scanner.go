package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// scanner goes through text that is known to be one JSON object.
type scanner struct {
	text     string
	at       int
	head     head
	inValues bool // the field at hand is "values"
}

func (s *scanner) space() {
	for strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0 {
		s.at++
	}
}

// value passes over one value. The free are those inside a value of "values", whose keys are the caller's.
func (s *scanner) value(depth int, free bool) error {
	switch s.text[s.at] {
	case '{':
		return s.object(depth, free)
	case '[':
		return s.list(depth, free)
	case '"':
		s.string()
	default:
		for strings.IndexByte(",]} \t\r\n", s.text[s.at]) < 0 {
			s.at++
		}
	}
	return nil
}

// string passes over a string and returns it, with its quotation marks.
func (s *scanner) string() string {
	start := s.at
	for s.at++; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.text[start:s.at]
}

func (s *scanner) list(depth int, free bool) error {
	if !free {
		s.head.count.lists++
	}
	return s.items(depth, ']', func() error {
		if depth == 1 {
			s.head.count.entries++
		}
		return s.value(depth+1, free)
	})
}

func (s *scanner) object(depth int, free bool) error {
	var seen keySet
	return s.items(depth, '}', func() error {
		key, err := s.key()
		if err != nil {
			return err
		}
		if err := seen.add(key); err != nil {
			return err
		}
		if !free && s.head.badKey == nil && !validKey(key) {
			s.head.badKey = &key
		}
		switch depth {
		case 0:
			s.inValues = key == "values"
		case 1:
			s.head.count.keys++
		}
		start := s.at
		if err := s.value(depth+1, free || s.inValues && depth == 1); err != nil {
			return err
		}
		if depth == 0 {
			s.head.fields[key] = s.text[start:s.at]
		}
		return nil
	})
}

// key passes over a key and its colon. Two texts may be one key.
func (s *scanner) key() (string, error) {
	text := s.string()
	s.space()
	s.at++
	s.space()
	key := text[1 : len(text)-1]
	if strings.IndexByte(key, '\\') < 0 {
		return key, nil
	}
	err := unmarshal([]byte(text), &key)
	return key, err
}

// items passes over what stands between brackets, with one call for each item.
func (s *scanner) items(depth int, end byte, item func() error) error {
	if depth >= maxDepth {
		return fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	for {
		s.at++ // the bracket, or a comma
		s.space()
		if s.text[s.at] == end { // of an empty one: no comma stands before a bracket
			break
		}
		if err := item(); err != nil {
			return err
		}
		s.space()
		if s.text[s.at] == end {
			break
		}
	}
	s.at++
	return nil
}

// keySet is the keys of an object. Most have few.
type keySet struct {
	few  []string
	many map[string]struct{}
}

const fewKeys = 16

func (k *keySet) add(key string) error {
	_, twice := k.many[key]
	if twice || slices.Contains(k.few, key) {
		return fmt.Errorf("key %s is there twice", quote(key))
	}
	if len(k.few)+len(k.many) == maxKeys {
		return fmt.Errorf("an object has more than %d keys", maxKeys)
	}
	if len(k.few) < fewKeys {
		k.few = append(k.few, key)
		return nil
	}
	if k.many == nil {
		k.many = map[string]struct{}{}
	}
	k.many[key] = struct{}{}
	return nil
}

// validKey says whether a key is [a-z0-9_.]{1,64}.
func validKey(key string) bool {
	if len(key) == 0 || len(key) > 64 {
		return false
	}
	for _, c := range []byte(key) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' {
			return false
		}
	}
	return true
}
