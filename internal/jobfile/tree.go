package jobfile

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

// A row of the schema says what one key of job.toml takes and where that goes.
type row struct {
	key    string                 // dotted; a last part "*" stands for keys of any name
	read   reader                 // nil: a table
	kinds  []string               // the kinds of the table that have this key; none: all
	need   bool                   // the table must have it
	kind   func(*Job) string      // of a table whose key "kind" decides over its other keys
	advise func(key string) error // of a table that knows more about a key than that it is unknown
}

// A node is a row in the tree of all rows.
type node struct {
	row
	keys map[string]*node // of a table; nil: none
	any  *node            // the "*" of a table; nil: none
	gap  *gap             // what this version does not do with it; nil: it does all
}

// schema is the tree of everything that job.toml may hold. It must not be changed.
var schema = sync.OnceValue(func() *node {
	top := &node{}
	for _, r := range slices.Concat(jobRows(), slurmRows(), launchRows(), requeueRows(), trainRows()) {
		top.make(r.key).row = r
	}
	for _, g := range gaps() {
		top.make(g.key).gap = &g
	}
	return top
})

// make returns the node of a dotted key below n, and makes what is missing on the way.
func (n *node) make(dotted string) *node {
	for name := range strings.SplitSeq(dotted, ".") {
		if name == "*" {
			n.any = &node{}
			return n.any
		}
		if n.keys == nil {
			n.keys = make(map[string]*node)
		}
		if n.keys[name] == nil {
			n.keys[name] = &node{}
		}
		n = n.keys[name]
	}
	return n
}

// child is the node of one key of table n; nil where the table has no such key.
func (n *node) child(name string) *node {
	if child := n.keys[name]; child != nil {
		return child
	}
	return n.any
}

// belongs tells whether a table of the given kind has this key.
func (n *node) belongs(kind string) bool {
	return len(n.kinds) == 0 || slices.Contains(n.kinds, kind)
}

// find looks below n for a key with the given name; nil where there is none.
func (n *node) find(name string) (toml.Key, *node) {
	for _, at := range slices.Sorted(maps.Keys(n.keys)) {
		if at == name {
			return toml.Key{at}, n.keys[at]
		}
		if key, found := n.keys[at].find(name); found != nil {
			return append(toml.Key{at}, key...), found
		}
	}
	return nil, nil
}

// show writes a key of the schema as it is written in a job file: a table in brackets.
func (n *node) show(key toml.Key) string {
	if n.read == nil {
		return "[" + key.String() + "]"
	}
	return key.String()
}
