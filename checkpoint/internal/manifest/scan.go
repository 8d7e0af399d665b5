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

// head is what a first pass over an object finds out, before its version is known. The pass decodes nothing but keys, so
// that it takes a second or two for 64 MiB, whatever they hold.
type head struct {
	fields map[string]string // of the object itself: each one's text, as it stands
	count  tally
	badKey *string // the first that is not [a-z0-9_.]{1,64} and no caller's, if there is one
}

// tally counts what decoding an object would allocate for, whether or not it fits the fields:
// encoding/json makes room for an entry before it finds that it is no such thing.
type tally struct {
	entries int // of lists that are fields: tensors and shards
	keys    int // of objects that are fields: values and metrics
	lists   int // all, outside the values of "values"
}

// check refuses more than the limits of this version could need. Fields that are added later
// have some room.
func (n tally) check() error {
	switch {
	case n.entries > MaxTensors+MaxShards:
		return fmt.Errorf("its lists have %d entries: too many", n.entries)
	case n.keys > 4*MaxValues:
		return fmt.Errorf("its objects have %d keys: too many", n.keys)
	case n.lists > 4*MaxTensors+MaxPieces:
		return fmt.Errorf("it has %d lists: too many", n.lists)
	}
	return nil
}

// scan makes the pass. It refuses what no version may have and encoding/json lets pass: a key that stands twice in one
// object (it takes the last), and bytes that are not UTF-8 (it replaces them); and what is not one object, nests too
// deep, or has too many keys.
func scan(data []byte) (head, error) {
	if !utf8.Valid(data) {
		return head{}, errors.New("it is not UTF-8")
	}
	if err := unmarshal(data, &struct{}{}); err != nil { // from here on the text is JSON, and an object
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

// check applies the rules of the versions that this program knows: keys, null, and how much there may be.
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

// What errors show of text from a file, at most; the rest of it may be 60 MiB.
const (
	maxQuoted = 80
	maxError  = 240 // of an error of encoding/json, which quotes for itself
)

// quote is text in quotation marks, of which the middle is left out where it is long.
func quote(s string) string { return text.Quoted(s, maxQuoted) }

// unmarshal is json.Unmarshal with errors of bounded length.
func unmarshal(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return errors.New(text.Shortened(err.Error(), maxError))
	}
	return nil
}
