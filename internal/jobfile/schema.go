package jobfile

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"

	words "ddpbatch/internal/text"
)

// A keyRow of the schema says what one key of job.toml takes and where that goes.
type keyRow struct {
	key    string                 // dotted; a last part "*" stands for keys of any name
	read   reader                 // nil: a table
	item   func(*Job)             // of a list of tables: another of them begins; nil: it is not such a list
	kinds  []string               // the kinds of the table that have this key; none: all
	need   bool                   // the table must have it
	kind   func(*Job) string      // of a table whose key "kind" decides over its other keys
	advise func(key string) error // of a table that knows more about a key than that it is unknown
}

// A node is a row in the tree of all rows.
type node struct {
	keyRow
	keys map[string]*node // of a table; nil: none
	any  *node            // the "*" of a table; nil: none
}

// schema is the tree of everything that job.toml may hold. It must not be changed.
var schema = sync.OnceValue(func() *node {
	top := &node{}
	for _, r := range slices.Concat(jobRows(), slurmRows(), componentRows(), launchRows(), requeueRows(), trainRows()) {
		top.make(r.key).keyRow = r
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

// isTable reports whether the key stands for one table.
func (n *node) isTable() bool { return n.read == nil && n.item == nil }

// appliesTo reports whether a table of the given kind has this key.
func (n *node) appliesTo(kind string) bool {
	return len(n.kinds) == 0 || slices.Contains(n.kinds, kind)
}

// find looks below n for a key with the given name; nil where there is none.
func (n *node) find(name string) (toml.Key, *node) {
	for _, at := range slices.Sorted(maps.Keys(n.keys)) {
		if at == name {
			return toml.Key{at}, n.keys[at]
		}
		if n.keys[at].item != nil {
			continue // its keys are others' too, and those are more likely to be meant
		}
		if key, found := n.keys[at].find(name); found != nil {
			return append(toml.Key{at}, key...), found
		}
	}
	return nil, nil
}

// similar returns the key below table n whose last part is nearest to name and has its first letter, or nothing.
func (n *node) similar(table toml.Key, name string, isCommand bool) []string {
	byName := map[string]string{}
	var look func(n *node, key toml.Key)
	look = func(n *node, key toml.Key) {
		for _, at := range slices.Sorted(maps.Keys(n.keys)) {
			child, sub := n.keys[at], below(key, at)
			if child.item != nil || isCommand && sub.String() == "train" {
				continue
			}
			if _, found := byName[at]; !found && at[:1] == name[:min(1, len(name))] {
				byName[at] = child.show(sub)
			}
			look(child, sub)
		}
	}
	look(n, table)
	if near := words.Nearest(name, slices.Sorted(maps.Keys(byName))); near != "" {
		return []string{byName[near]}
	}
	return nil
}

// show writes a key of the schema as it is written in a job file: a table in brackets.
func (n *node) show(key toml.Key) string {
	switch {
	case n.item != nil:
		return "[[" + key.String() + "]]"
	case n.isTable():
		return "[" + key.String() + "]"
	}
	return key.String()
}
