package jobfile

import (
	"strings"
	"unicode/utf8"
)

// A place is where a key stands, together with the places of the keys below it. The root
// is the place of the file itself.
type place struct {
	offset int               // in the source, of the key's first byte
	depth  int               // of the root: 0
	set    int               // 0: in the file; n: in the nth --set
	text   string            // in a --set: the value as it was typed
	keys   map[string]*place // nil: none
}

// below finds the place of a key of this table. A key that the locator has not found is given the
// place of its table: less exact, never wrong.
func (p *place) below(name string) *place {
	if q := p.keys[name]; q != nil {
		return q
	}
	return &place{offset: p.offset, set: p.set}
}

// at finds the place of a dotted key below p.
func (p *place) at(key []string) *place {
	for _, name := range key {
		p = p.below(name)
	}
	return p
}

// add returns the place of a key of this table, and makes it where it is new: where
// a table is opened twice, the first place counts.
func (p *place) add(name string, offset int) *place {
	if q := p.keys[name]; q != nil {
		return q
	}
	q := &place{offset: offset, depth: p.depth + 1}
	p.put(name, q)
	return q
}

func (p *place) put(name string, q *place) {
	if p.keys == nil {
		p.keys = make(map[string]*place)
	}
	p.keys[name] = q
}

// position turns an offset into a line and a column, both from 1. Offsets outside the
// source are taken to its nearer end.
func position(src string, offset int) (line, column int) {
	before := src[:min(max(offset, 0), len(src))]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1
}
