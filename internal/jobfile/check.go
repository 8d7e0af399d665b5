package jobfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/redact"
	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// A checker turns the tables of one file, merged over those of defaults, into one job, and collects the faults.
type checker struct {
	name     string
	src      string
	defaults *Defaults // nil: there are none
	isPart   bool      // the file is one of defaults, which may lack keys that a job needs
	sets     []override
	command  bool // the job runs a command: [train] does not apply
	job      *Job
	faults   []finding
	warnings []finding
	bad      map[string]bool // keys that have a fault
}

// A finding is a fault that still knows its position.
type finding struct {
	at  *position
	key toml.Key
	msg string
}

// maxFaults is how many faults are reported: more do not help a person, and each takes time.
const maxFaults = 100

// isFull reports whether there are too many faults, so that checking can stop.
func (c *checker) isFull() bool { return len(c.faults) > maxFaults }

// fault adds a fault of a key at a position.
func (c *checker) fault(at *position, key toml.Key, format string, args ...any) {
	if c.bad == nil {
		c.bad = make(map[string]bool)
	}
	c.bad[key.String()] = true
	c.add(finding{at, key, fmt.Sprintf(format, args...)})
}

// add adds a fault, unless there are too many already.
func (c *checker) add(f finding) {
	switch {
	case c.isFull():
		return
	case len(c.faults) == maxFaults:
		const more = "there are more than %d faults; the others are not shown: correct these first"
		f = finding{&position{offset: len(c.src)}, nil, fmt.Sprintf(more, maxFaults)}
	}
	c.faults = append(c.faults, f)
}

// checkAll checks all tables of a file except [sweep], by themselves and against each other.
func (c *checker) checkAll(values map[string]any, root *position, dir string) {
	launch, _ := values["launch"].(map[string]any)
	c.command = launch["command"] != nil
	c.table(schema(), nil, values, root)
	c.countRanks(root)
	c.checkRules(values, root)
	c.resolvePaths(root, dir)
	c.checkBinds(root)
}

// table checks the keys of one table, in the order of the file.
func (c *checker) table(n *node, key toml.Key, values map[string]any, at *position) {
	kind, ok := c.kind(n, key, values, at)
	if !ok {
		return // the kind decides which keys there are
	}
	names := slices.Sorted(maps.Keys(values)) // the next line sorts by position: the order of the file, and then overrides
	slices.SortStableFunc(names, func(a, b string) int { return comparePositions(at.below(a), at.below(b)) })
	for _, name := range names {
		if c.isFull() {
			return
		}
		sub, where := below(key, name), at.below(name)
		child := n.child(name)
		switch {
		case child == nil:
			c.fault(where, sub, "%s", unknown(n, sub, values[name], c.command))
		case !child.appliesTo(kind):
			c.fault(where, sub, "%s is not a key of kind %q, only of %s", sub, kind, words.Choice(child.kinds))
		case name != "kind" || n.kind == nil: // otherwise it was read already
			c.value(child, sub, values[name], where)
		}
	}
	if c.isPart {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.keys)) {
		if child := n.keys[name]; child.need && child.appliesTo(kind) && values[name] == nil {
			c.missing(at, key, name)
		}
	}
}

// kind reads the key "kind" of a table, if that decides which other keys the table has.
func (c *checker) kind(n *node, key toml.Key, values map[string]any, at *position) (kind string, ok bool) {
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

// value checks one value and what it contains, stores it in the job, and reports whether it could be read. A value from a command line is
// read as TOML or, if that is not valid for the key, as the text that was typed: a name may be 2024, and a time limit 01:00:00.
func (c *checker) value(n *node, key toml.Key, v any, at *position) bool {
	if n.item != nil {
		tables, ok := tablesIn(v)
		if !ok {
			c.fault(at, key, "%s", mustBe(key, "tables, each below a "+n.show(key), v))
			return false
		}
		for i, values := range tables {
			n.item(c.job)
			c.table(n, key, values, at.item(i))
		}
	} else if n.read == nil {
		values, ok := v.(map[string]any)
		if !ok {
			c.fault(at, key, "%s%s", mustBe(key, "a table", v), kindAdvice(n, key, v))
			return false
		}
		c.table(n, key, values, at)
	} else if err := n.read(c.job, key, v); err != nil && (at.text == "" || n.read(c.job, key, at.text) != nil) {
		c.fault(at, key, "%s%s", err, quoteItems(err, n, key, v, at))
		return false
	}
	return true
}

// kindAdvice says, after "; ", how to write a table if only its kind was given, as in model = "mlp".
func kindAdvice(n *node, key toml.Key, v any) string {
	if kind, isText := v.(string); isText && n.kind != nil && n.keys["kind"].read(&Job{}, below(key, "kind"), kind) == nil {
		return fmt.Sprintf("; write %s = { kind = %q, ... }", key, kind)
	}
	return ""
}

// quoteItems says, after "; ", how to write a list, if err is about an override that was meant as one but is not TOML, or has only its
// words.
func quoteItems(err error, n *node, key toml.Key, v any, at *position) string {
	text, isText := v.(string)
	if !isText || at.text != text || !strings.Contains(err.Error(), " list") {
		return ""
	}
	if strings.HasPrefix(text, "[") {
		return fmt.Sprintf(`; in a list text needs quotes, which the shell must not remove: --set '%s=["...", "..."]'`, key)
	}
	var items []any
	for _, word := range redact.Words(strings.Fields(text)) {
		items = append(items, word)
	}
	if len(text) > redact.Shown || redact.Named(key.String()) || n.read(&Job{}, key, items) != nil {
		return ""
	}
	value, _ := tomlValue(items) // text can always be written
	return "; write a list: --set " + slurm.ShellQuote(key.String()+"="+value)
}

// missing adds the fault that a table lacks a key.
func (c *checker) missing(table *position, key toml.Key, name string) {
	owner := "a job"
	if len(key) > 0 {
		owner = key.String()
	}
	c.fault(table, below(key, name), "%s needs the key %s", owner, name)
}

// ordered returns findings as faults, in the order of the files.
func (c *checker) ordered(found []finding) []Fault {
	slices.SortStableFunc(found, func(a, b finding) int { return comparePositions(a.at, b.at) })
	faults := make([]Fault, len(found))
	for i, f := range found {
		faults[i] = Fault{Key: f.key.String(), Message: f.msg}
		faults[i].File, faults[i].Line, faults[i].Column = c.place(f.at)
	}
	return faults
}

// place returns the file, line and column of a position, or the name of an override.
func (c *checker) place(at *position) (file string, line, column int) {
	switch {
	case at.set > 0:
		return "--set " + c.sets[at.set-1].key, 0, 0
	case at.file > 0:
		return c.defaults.place(at)
	}
	line, column = lineColumn(c.src, at.offset)
	return c.name, line, column
}

// comparePositions sorts the job file's keys before those of defaults, and these before those of overrides.
func comparePositions(a, b *position) int {
	return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.file, b.file), cmp.Compare(a.offset, b.offset))
}

// below returns the key of the given name in a table. It does not share memory with the table's key.
func below(key toml.Key, name string) toml.Key {
	return append(slices.Clip(key), name)
}

// maxMeant is how many keys that begin with an unknown one are shown.
const maxMeant = 4

// unknown returns a message that the last name of key is not a key of table n, and what may have been meant. If the job is known to run a
// command, that is not a key of [train].
func unknown(n *node, key toml.Key, v any, isCommand bool) string {
	table, name := key[:len(key)-1], key[len(key)-1]
	what := "key " + key.String()
	if _, isTable := v.(map[string]any); isTable {
		what = "table [" + key.String() + "]"
	}
	var advice error
	if n.advise != nil {
		advice = n.advise(name)
	}
	if advice != nil && !errors.Is(advice, slurm.ErrUnknownOption) {
		return advice.Error()
	}
	var meant []string
	home, elsewhere := schema().find(name)
	if isCommand && elsewhere != nil && home[0] == "train" {
		elsewhere = nil
	}
	// A key of that very name elsewhere is likelier than one here that only resembles it, but for "node" in place of "nodes".
	names := slices.Sorted(maps.Keys(n.keys))
	near := words.Nearest(name, names)
	begun := slices.DeleteFunc(names, func(known string) bool { return !strings.HasPrefix(known, name+"_") })
	if len(begun) > 0 && len(begun) <= maxMeant { // whole words of a key say more than a few edits of another
		near = ""
		for _, known := range begun {
			meant = append(meant, n.keys[known].show(below(table, known)))
		}
	}
	if near != "" && (elsewhere == nil || strings.HasPrefix(near, name) || strings.HasPrefix(name, near)) {
		meant = append(meant, n.keys[near].show(below(table, near)))
	}
	if elsewhere != nil {
		meant = append(meant, elsewhere.show(home))
	}
	if len(meant) == 0 && advice == nil {
		meant = n.similar(table, name, isCommand)
	}
	if len(meant) > 0 {
		return fmt.Sprintf("unknown %s: did you mean %s?", what, strings.Join(meant, ", or "))
	}
	if advice != nil {
		return advice.Error()
	}
	return fmt.Sprintf("unknown %s; known here: %s", what, strings.Join(slices.Sorted(maps.Keys(n.keys)), ", "))
}
