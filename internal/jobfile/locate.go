package jobfile

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// locate finds the position of each key of a TOML document: keys and dotted keys, [tables] and
// [[tables]], and keys of inline tables, also in lists; quoted or bare.
//
// It accepts more than TOML does and checks only the nesting: if the source is
// nested deeper than maxDepth, deep is the offset of that, and otherwise -1. It skips what
// follows text that it cannot read.
func locate(src string) (root *position, deep int) {
	s := &scanner{src: src, deep: -1}
	root = &position{}
	table := root
	for s.skipBlank() {
		ok := true
		if s.peek() == '[' {
			table, ok = s.header(root)
		} else {
			ok = s.pair(table)
		}
		if !ok {
			break
		}
	}
	return root, s.deep
}

// maxDepth bounds how deep tables, lists and dotted keys may be nested.
const maxDepth = 32

// A position is the position of a key, together with the positions of the keys below it. The root
// is the position of the file itself. When the keys of several files are merged, each key keeps its position.
type position struct {
	offset int                  // of the key's first byte in the source
	depth  int                  // 0 for the root
	set    int                  // 0: in a file; n: in the nth --set
	file   int                  // 0: in the job file; n: in the nth file of defaults
	text   string               // in a --set: the value as it was typed
	keys   map[string]*position // nil: none
	items  []*position          // the tables in a list
}

// below returns the position of a key of this table. For a key that the locator has not found it returns the
// position of the table, which is less exact but not wrong.
func (p *position) below(name string) *position {
	if q := p.keys[name]; q != nil {
		return q
	}
	return &position{offset: p.offset, set: p.set, file: p.file}
}

// at returns the position of a dotted key below p.
func (p *position) at(key []string) *position {
	for _, name := range key {
		p = p.below(name)
	}
	return p
}

// item returns the position of the table with an index in a list of tables, as below does.
func (p *position) item(index int) *position {
	if index < len(p.items) {
		return p.items[index]
	}
	return p.below("")
}

// add returns the position of a key of this table, and makes it if it is new. If
// a table is opened twice, the first position counts.
func (p *position) add(name string, offset int) *position {
	if q := p.keys[name]; q != nil {
		return q
	}
	q := &position{offset: offset, depth: p.depth + 1, file: p.file}
	p.put(name, q)
	return q
}

// addItem makes the position of another table in a list.
func (p *position) addItem(offset int) *position {
	q := &position{offset: offset, depth: p.depth + 1, file: p.file}
	p.items = append(p.items, q)
	return q
}

func (p *position) put(name string, q *position) {
	if p.keys == nil {
		p.keys = make(map[string]*position)
	}
	p.keys[name] = q
}

// moveTo moves a position, and all below it, to a file of defaults, by its number from 1.
func (p *position) moveTo(file int) {
	p.file = file
	for _, q := range p.keys {
		q.moveTo(file)
	}
	for _, q := range p.items {
		q.moveTo(file)
	}
}

// precedence returns a number by which settings of files and overrides are ordered: the largest one counts.
func (p *position) precedence() int {
	const job = math.MaxInt32 // more than the number of files of defaults
	switch {
	case p.set > 0:
		return job + p.set
	case p.file > 0:
		return p.file
	}
	return job
}

// lineColumn turns an offset into a line and a column, both from 1. Offsets outside the
// source count as its nearer end.
func lineColumn(src string, offset int) (line, column int) {
	before := src[:min(max(offset, 0), len(src))]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1
}

// A scanner steps through TOML text. Every step moves forward or reports that it
// cannot, so every loop over steps ends.
type scanner struct {
	src  string
	off  int
	deep int // offset of what is nested too deep; -1: none
}

// header reads "[a.b]" or "[[a.b]]" and returns the table that it opens.
func (s *scanner) header(root *position) (table *position, ok bool) {
	start := s.off
	s.off++
	isItem := s.peek() == '['
	if isItem {
		s.off++
	}
	table, ok = s.key(root)
	if !ok {
		return root, false
	}
	if isItem {
		table = table.addItem(start)
	}
	for s.peek() == ']' {
		s.off++
	}
	return table, true
}

// pair reads "key = value" of a table.
func (s *scanner) pair(table *position) bool {
	p, ok := s.key(table)
	if !ok || s.peek() != '=' {
		return false
	}
	s.off++
	return s.value(p)
}

// key reads a key, dotted or not, and the white space around it.
func (s *scanner) key(table *position) (p *position, ok bool) {
	p = table
	for {
		s.skipSpace()
		start := s.off
		name, ok := s.keyPart()
		if !ok || s.tooDeep(p) {
			return nil, false
		}
		p = p.add(name, start)
		s.skipSpace()
		if s.peek() != '.' {
			return p, true
		}
		s.off++
	}
}

// value skips the value of the key at p, and adds the keys of an inline table to p.
func (s *scanner) value(p *position) bool {
	s.skipSpace()
	switch s.peek() {
	case '"', '\'':
		return s.skipString()
	case '[':
		return s.each(']', p, func() bool {
			if s.skipSpace(); s.peek() != '{' {
				return s.value(&position{depth: p.depth + 1})
			}
			return s.value(p.addItem(s.off))
		})
	case '{':
		return s.each('}', p, func() bool { return s.pair(p) })
	default:
		return s.skipScalar()
	}
}

// each reads the items of a list or an inline table, from the opening bracket through the
// closing one. TOML 1.1 allows new lines, comments and a last comma in both.
func (s *scanner) each(closing byte, p *position, item func() bool) bool {
	if s.tooDeep(p) {
		return false
	}
	s.off++
	for s.skipBlank() {
		switch s.peek() {
		case closing:
			s.off++
			return true
		case ',':
			s.off++
		default:
			if !item() {
				return false
			}
		}
	}
	return false
}

// peek returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.off < len(s.src) {
		return s.src[s.off]
	}
	return 0
}

// tooDeep reports whether p is at the largest depth, so that nothing below it is read, and records that.
func (s *scanner) tooDeep(p *position) bool {
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

// skipBlank skips white space, line ends and comments, and reports whether anything is left.
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

// skipScalar skips a number, a boolean, a date or a time, which end at a comma, a bracket, a
// comment or the line's end. A date may contain a space.
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
	// """a""""" is a string that itself ends in two quotes.
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

// skipPast skips through the next delim. If escapes, a backslash escapes the byte after it.
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

// keyPart reads one part of a key and returns its name.
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

// unquote returns the name that a quoted key stands for.
func unquote(quoted string) (name string, ok bool) {
	if !strings.Contains(quoted, `\`) || quoted[0] == '\'' {
		return quoted[1 : len(quoted)-1], true
	}
	// A quoted key is written like a one-line string; the library knows the escapes.
	var v struct{ Name string }
	_, err := toml.Decode("Name = "+quoted, &v)
	return v.Name, err == nil
}
