package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
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
