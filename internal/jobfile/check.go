package jobfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/BurntSushi/toml"
)

// A checker turns the tables of one file into one job, and gathers what is wrong with them.
type checker struct {
	name     string
	src      string
	sets     []override
	job      *Job
	faults   []finding
	warnings []finding
	bad      map[string]bool // keys that have a fault
}

// A finding is a fault that still knows its place.
type finding struct {
	at  *place
	key toml.Key
	msg string
}

// maxFaults is how many faults are told: more are no help to a person, and each takes time.
const maxFaults = 100

// full tells whether nothing more is worth checking.
func (c *checker) full() bool { return len(c.faults) > maxFaults }

// fault notes that key, at a place, is wrong.
func (c *checker) fault(at *place, key toml.Key, format string, args ...any) {
	if c.bad == nil {
		c.bad = make(map[string]bool)
	}
	c.bad[key.String()] = true
	switch {
	case c.full():
		return
	case len(c.faults) == maxFaults:
		at, key = &place{offset: len(c.src)}, nil
		format, args = "there are more than %d faults, and the others are not shown: correct these first", []any{maxFaults}
	}
	c.faults = append(c.faults, finding{at, key, fmt.Sprintf(format, args...)})
}

// version tells whether the file has the schema that this package knows: another one has other keys,
// so that nothing else is worth checking.
func (c *checker) version(values map[string]any, root *place) bool {
	v, given := values["schema"]
	return !given || c.value(schema().keys["schema"], toml.Key{"schema"}, v, root.below("schema"))
}

// table checks the keys of one table, in the order of the file.
func (c *checker) table(n *node, key toml.Key, values map[string]any, at *place) {
	kind, ok := c.kind(n, key, values, at)
	if !ok {
		return // which keys it has depends on its kind
	}
	for _, name := range inOrder(values, at) {
		if c.full() {
			return
		}
		sub, where := below(key, name), at.below(name)
		child := n.child(name)
		switch {
		case child == nil:
			c.fault(where, sub, "%s", unknown(n, sub, values[name]))
		case !child.belongs(kind):
			c.fault(where, sub, "%s is no key of kind %q, but of %s", sub, kind, quoted(child.kinds))
		case name != "kind" || n.kind == nil: // else it is read already
			c.value(child, sub, values[name], where)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.keys)) {
		if child := n.keys[name]; child.need && child.belongs(kind) && values[name] == nil {
			c.missing(at, key, name)
		}
	}
}

// kind reads what decides over the other keys of a table that comes in several kinds.
func (c *checker) kind(n *node, key toml.Key, values map[string]any, at *place) (kind string, ok bool) {
	if n.kind == nil {
		return "", true
	}
	child, v := n.keys["kind"], values["kind"]
	switch {
	case v != nil:
		ok = c.value(child, below(key, "kind"), v, at.below("kind"))
	case child.need:
		c.missing(at, key, "kind")
	default:
		ok = true
	}
	return n.kind(c.job), ok
}

// value checks one value and what it holds, and tells whether this version can act on it.
func (c *checker) value(n *node, key toml.Key, v any, at *place) bool {
	if n.read == nil {
		values, ok := v.(map[string]any)
		if !ok {
			c.fault(at, key, "%s", mustBe(key, "a table", v))
			return false
		}
		c.table(n, key, values, at)
	} else if err := c.read(n, key, v, at); err != nil {
		c.fault(at, key, "%s", err)
		return false
	}
	return n.gap == nil || c.gap(n.gap, key, v, at)
}

// read stores a value in the job. A value from a command line is what it looks like to TOML, or else the
// text that was typed: a name may be 2024, and a time limit 01:00:00.
func (c *checker) read(n *node, key toml.Key, v any, at *place) error {
	err := n.read(c.job, key, v)
	if err != nil && at.text != "" && n.read(c.job, key, at.text) == nil {
		return nil
	}
	return err
}

// missing notes that a table lacks a key.
func (c *checker) missing(table *place, key toml.Key, name string) {
	owner := "a job"
	if len(key) > 0 {
		owner = key.String()
	}
	c.fault(table, below(key, name), "%s needs the key %s", owner, name)
}

// report gives what was found, as others see it, in the order of the file.
func (c *checker) report() (warnings, faults []Fault) {
	return c.ordered(c.warnings), c.ordered(c.faults)
}

func (c *checker) ordered(found []finding) []Fault {
	slices.SortStableFunc(found, func(a, b finding) int { return comparePlaces(a.at, b.at) })
	faults := make([]Fault, len(found))
	for i, f := range found {
		faults[i] = Fault{File: c.name, Key: f.key.String(), Message: f.msg}
		if f.at.set > 0 {
			faults[i].File = "--set " + c.sets[f.at.set-1].key
		} else {
			faults[i].Line, faults[i].Column = position(c.src, f.at.offset)
		}
	}
	return faults
}

// inOrder lists the keys of a table in the order of the file, those of overrides last.
func inOrder(values map[string]any, at *place) []string {
	names := slices.Sorted(maps.Keys(values))
	slices.SortStableFunc(names, func(a, b string) int { return comparePlaces(at.below(a), at.below(b)) })
	return names
}

func comparePlaces(a, b *place) int {
	return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.offset, b.offset))
}

// below is the key of a table's key; it never shares memory with the table's own.
func below(key toml.Key, name string) toml.Key {
	return append(slices.Clip(key), name)
}
