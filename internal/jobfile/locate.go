package jobfile

// maxDepth bounds how deep tables, lists and dotted keys may be nested.
const maxDepth = 32

// locate finds where each key of a TOML document stands: keys and dotted keys, [tables] and
// [[tables]], and keys of inline tables; quoted or bare. Keys inside lists are left out,
// as no key of a job takes a list of tables.
//
// It accepts more than TOML does and checks nothing but nesting: where the source is
// nested deeper than maxDepth, deep is the offset of that, and otherwise -1. What
// follows something that it cannot read is left out.
func locate(src string) (root *place, deep int) {
	s := &scanner{src: src, deep: -1}
	root = &place{}
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

// header reads "[a.b]" or "[[a.b]]" and returns the table that it opens.
func (s *scanner) header(root *place) (table *place, ok bool) {
	s.off++
	if s.peek() == '[' {
		s.off++
	}
	table, ok = s.key(root)
	if !ok {
		return root, false
	}
	for s.peek() == ']' {
		s.off++
	}
	return table, true
}

// pair reads "key = value" of a table.
func (s *scanner) pair(table *place) bool {
	p, ok := s.key(table)
	if !ok || s.peek() != '=' {
		return false
	}
	s.off++
	return s.value(p)
}

// key reads a key, dotted or not, and the white space round it.
func (s *scanner) key(table *place) (p *place, ok bool) {
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

// value reads past the value of the key at p, and adds the keys of an inline table to p.
func (s *scanner) value(p *place) bool {
	s.skipSpace()
	switch s.peek() {
	case '"', '\'':
		return s.skipString()
	case '[':
		item := &place{depth: p.depth + 1} // keys below it are found, and dropped
		return s.each(']', p, func() bool { return s.value(item) })
	case '{':
		return s.each('}', p, func() bool { return s.pair(p) })
	default:
		return s.skipScalar()
	}
}

// each reads the items of a list or an inline table, from the opening bracket to past the
// closing one. TOML 1.1 allows new lines, comments and a last comma in both.
func (s *scanner) each(closing byte, p *place, item func() bool) bool {
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
