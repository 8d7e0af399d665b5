package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"ddpbatch/internal/text"
)

// head is what a first pass over an object finds, before its version is known. The pass decodes only keys, so
// it takes a second or two for 64 MiB, whatever they hold.
type head struct {
	fields map[string]string // of the object itself: the text of each
	count  tally
	badKey *string // the first key that does not match [a-z0-9_.]{1,64} and is not the caller's; nil: none
}

// tally counts what decoding an object would allocate for, even if it does not fit the fields:
// encoding/json allocates an entry before it finds that the entry has another type.
type tally struct {
	entries int // of lists that are fields: tensors and shards
	keys    int // of objects that are fields: values and metrics
	lists   int // all, except inside the values of "values"
}

// check refuses more than this version could need. The limits leave some room for fields that are added
// later.
func (n tally) check() error {
	switch {
	case n.entries > MaxTensors+MaxShards:
		return fmt.Errorf("its lists have %d entries, which is too many", n.entries)
	case n.keys > 4*MaxValues:
		return fmt.Errorf("its objects have %d keys, which is too many", n.keys)
	case n.lists > 4*MaxTensors+MaxPieces:
		return fmt.Errorf("it has %d lists, which is too many", n.lists)
	}
	return nil
}

// scan makes the pass. It refuses two things that encoding/json accepts: a key that occurs twice in one
// object (encoding/json takes the last), and bytes that are not UTF-8 (it replaces them). It also refuses what is not one object, is nested
// too deeply, or has too many keys.
func scan(data []byte) (head, error) {
	if !utf8.Valid(data) {
		return head{}, errors.New("it is not UTF-8")
	}
	if err := unmarshal(data, &struct{}{}); err != nil { // after this the text is known to be a JSON object
		return head{}, err
	}
	s := scanner{text: string(data)}
	s.space()
	if s.text[s.at] != '{' {
		return head{}, errors.New("it is not an object")
	}
	s.head.fields = map[string]string{}
	if err := s.object(0, false); err != nil {
		return head{}, err
	}
	return s.head, nil
}

// check applies the rules of the versions that this program knows: for keys, for null, and for the sizes.
func (h *head) check() error {
	if h.badKey != nil {
		return fmt.Errorf("key %s is not [a-z0-9_.]{1,64}", quote(*h.badKey))
	}
	for _, name := range slices.Sorted(maps.Keys(h.fields)) {
		if h.fields[name] == "null" {
			return fmt.Errorf("field %s is null", quote(name))
		}
	}
	return h.count.check()
}

// require refuses an object without one of the fields.
func (h *head) require(names ...string) error {
	for _, name := range names {
		if _, ok := h.fields[name]; !ok {
			return fmt.Errorf("field %q is missing", name)
		}
	}
	return nil
}

// scanner reads text that is known to be one JSON object.
type scanner struct {
	text     string
	at       int
	head     head
	inValues bool // the current field is "values"
}

func (s *scanner) space() {
	for strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0 {
		s.at++
	}
}

// value skips one value. free is set inside a value of "values", whose keys are the caller's.
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

// string skips a string and returns it, with its quotation marks.
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

// key skips a key and its colon, and returns the decoded key: two texts may be the same key.
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

// items skips the contents of a pair of brackets, and calls item for each item.
func (s *scanner) items(depth int, end byte, item func() error) error {
	if depth >= maxDepth {
		return fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	for {
		s.at++ // the bracket, or a comma
		s.space()
		if s.text[s.at] == end { // an empty pair: no comma comes before a closing bracket
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

// keySet is the set of an object's keys. Most objects have few.
type keySet struct {
	few  []string
	many map[string]struct{}
}

const fewKeys = 16

func (k *keySet) add(key string) error {
	_, twice := k.many[key]
	if twice || slices.Contains(k.few, key) {
		return fmt.Errorf("key %s occurs twice", quote(key))
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

// validKey reports whether a key matches [a-z0-9_.]{1,64}.
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

// How much text from a file an error may show; the file may have 60 MiB.
const (
	maxQuoted = 80
	maxError  = 240 // of an error of encoding/json, which quotes text itself
)

// quote returns text in quotation marks, and leaves out the middle of a long text.
func quote(s string) string { return text.Quoted(s, maxQuoted) }

// unmarshal is json.Unmarshal with errors of bounded length.
func unmarshal(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return errors.New(text.Shortened(err.Error(), maxError))
	}
	return nil
}
