package jobfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/usage"
	"ddpbatch/slurm"
)

// A forbiddenKey is a key, or a whole table, that jobs of a site may not have.
type forbiddenKey struct {
	key      toml.Key
	sentence string // the site's explanation
	place    string // where the sentence is, for a message
}

// takeForbidden removes the table [forbid] from the tables of a file of defaults and reads it. Only the site's file may have one.
func (c *checker) takeForbidden(values map[string]any, root *position, site bool) []forbiddenKey {
	const name = "forbid"
	v, given := values[name]
	if !given {
		return nil
	}
	delete(values, name)
	key, at := toml.Key{name}, root.below(name)
	table, isTable := v.(map[string]any)
	switch {
	case !site:
		c.fault(at, key, "[%s] is allowed only in the site's file", name)
	case !isTable:
		c.fault(at, key, "%s", mustBe(key, "a table", v))
	default:
		return c.readForbidden(key, nil, table, at)
	}
	return nil
}

// readForbidden reads a table of forbidden keys below key: "slurm.exclusive" = "...", or the same with a table for slurm.
func (c *checker) readForbidden(written, key toml.Key, table map[string]any, at *position) (all []forbiddenKey) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if c.isFull() {
			break
		}
		written, where := below(written, name), at.below(name)
		key := append(slices.Clip(key), strings.Split(name, ".")...)
		if deeper, isTable := table[name].(map[string]any); isTable {
			all = append(all, c.readForbidden(written, key, deeper, where)...)
			continue
		}
		sentence, isText := table[name].(string)
		problem := unknownIn(key)
		switch {
		case key[len(key)-1] == "*":
			c.fault(where, written, "[forbid]: to forbid all keys of a table, write the table: %q", key[:len(key)-1].String())
		case problem != "":
			c.fault(where, written, "[forbid]: %s", problem)
		case !isText || !isLine(sentence):
			c.fault(where, written, "%s", mustBe(written, "one line of text that says what to do instead", table[name]))
		default:
			line, column := lineColumn(c.src, where.offset)
			all = append(all, forbiddenKey{key, sentence, Fault{File: c.name, Line: line, Column: column}.where()})
		}
	}
	return all
}

// unknownIn returns a message about the first part of a key that the schema does not know, or "" if it knows all.
func unknownIn(key toml.Key) string {
	for i := range key {
		if nodeOf(key[:i+1]) == nil {
			return unknown(nodeOf(key[:i]), key[:i+1], nil, false)
		}
	}
	return ""
}

// checkForbidden adds a fault for each key in the tables of one file, or of one override, that the site forbids.
func (d *Defaults) checkForbidden(c *checker, values map[string]any, root *position) {
	if d == nil {
		return
	}
	if swept, isTable := values["sweep"].(map[string]any); isTable {
		d.checkSwept(c, nil, swept, root.below("sweep"))
	}
	d.checkAsked(c, values, root)
	for _, f := range d.forbidden {
		if _, at, found := lookUp(values, root, f.key); found {
			c.fault(at, f.key, "%s", f.refusal(nodeOf(f.key).show(f.key)))
			continue
		}
		for _, at := range f.inComponents(values, root) {
			key := append(toml.Key{"slurm", "component"}, f.key[1:]...)
			c.fault(at, key, "%s", f.refusal(key.String()))
		}
		for name, says := range map[string]func(string) bool{"extra": f.isSetBy, "skip": f.isSkippedBy} {
			key := toml.Key{"slurm", name}
			table, at, found := lookUp(values, root, key)
			if !found {
				continue
			}
			items, _ := table[name].([]any)
			for _, item := range items {
				if word, _ := item.(string); says(word) {
					c.fault(at, key, "%s", f.refusal(short(word)+" of "+key.String()))
				}
			}
		}
	}
}

// inComponents returns the positions at which components of a job have the key, if it is one of [slurm].
func (f forbiddenKey) inComponents(values map[string]any, root *position) (places []*position) {
	if len(f.key) != 2 || f.key[0] != "slurm" {
		return nil
	}
	table, at, found := lookUp(values, root, toml.Key{"slurm", "component"})
	if !found {
		return nil
	}
	components, _ := tablesIn(table["component"])
	for i, c := range components {
		if _, given := c[f.key[1]]; given {
			places = append(places, at.item(i).below(f.key[1]))
		}
	}
	return places
}

// checkAsked adds a fault for keys that are not forbidden themselves, but make ddpbatch ask sbatch for a forbidden option.
func (d *Defaults) checkAsked(c *checker, values map[string]any, root *position) {
	swept, _ := values["sweep"].(map[string]any)
	sweep, chain := toml.Key{"sweep"}, toml.Key{"slurm", "chain"}
	links := int64(0)
	table, at, found := lookUp(values, root, chain)
	if found {
		links, _ = table["chain"].(int64)
	}
	for _, f := range d.forbidden {
		if len(swept) > 0 && f.isOption("array") {
			c.fault(root.at(sweep), sweep, "%s", f.refusal("[sweep], which makes an array,"))
		}
		if links > 1 && len(f.key) > 1 && f.isOption("dependency") { // if all of [slurm] is forbidden, checkForbidden reports that
			c.fault(at, chain, "%s", f.refusal(chain.String()+", whose links depend on each other,"))
		}
	}
}

// checkSwept adds a fault for each key in a table, [sweep] or one in it, that the site forbids. before has the names of the tables around
// it.
func (d *Defaults) checkSwept(c *checker, before toml.Key, table map[string]any, at *position) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		path := append(slices.Clip(before), strings.Split(name, ".")...)
		if deeper, isTable := table[name].(map[string]any); isTable {
			d.checkSwept(c, path, deeper, at.below(name))
			continue
		}
		path, _, err := findSwept(path)
		if err != nil {
			continue // reported elsewhere
		}
		for _, f := range d.forbidden {
			if len(f.key) <= len(path) && slices.Equal(f.key, path[:len(f.key)]) {
				c.fault(at.below(name), append(toml.Key{"sweep"}, path...), "%s", f.refusal(path.String()))
			}
		}
	}
}

// checkOverride adds a fault for what one override sets that the site forbids.
func (d *Defaults) checkOverride(c *checker, o override, at *position) {
	if d == nil || d.freeSets || len(d.forbidden) == 0 {
		return
	}
	values, root := map[string]any{}, &position{set: at.set}
	o.apply(values, root, at)
	d.checkForbidden(c, values, root)
}

func (f forbiddenKey) refusal(what string) string {
	return fmt.Sprintf("%s is not for jobs of this site: %s (%s)", what, f.sentence, f.place)
}

// isOption reports whether the key forbids the option of sbatch with the given key in [slurm], or all options.
func (f forbiddenKey) isOption(key string) bool {
	return f.key[0] == "slurm" && (len(f.key) == 1 || f.key[1] == key)
}

// isSetBy reports whether a word of sbatch's command line sets the same as the key.
func (f forbiddenKey) isSetBy(word string) bool {
	switch {
	case f.key[0] != "slurm":
		return false
	case len(f.key) == 1 || f.key[1] == "extra":
		return word != ""
	}
	return slurm.Sets(word, f.key[1])
}

// isSkippedBy reports whether an item of slurm.skip skips the key, for which the site may have set a value.
func (f forbiddenKey) isSkippedBy(item string) bool {
	return len(f.key) == 2 && f.key[0] == "slurm" && slurm.Skips(item, f.key[1])
}

// CheckSets refuses overrides of keys that the site forbids.
func (d *Defaults) CheckSets(sets []string) error {
	c := newChecker("", nil)
	c.defaults = d
	c.override(map[string]any{}, &position{}, sets)
	_, err := c.found()
	return err
}

// CheckWords refuses words for sbatch that set the same as a key that the site forbids.
func (d *Defaults) CheckWords(words []string) error {
	if d == nil {
		return nil
	}
	for _, word := range words {
		for _, f := range d.forbidden {
			if f.isSetBy(word) {
				return usage.Errorf("%s", f.refusal("sbatch's "+short(word)))
			}
		}
	}
	return nil
}

// CheckFlag refuses a flag that makes ddpbatch ask sbatch for the option with the given key of [slurm], if the site forbids that option.
func (d *Defaults) CheckFlag(flag, key string) error {
	if d == nil {
		return nil
	}
	for _, f := range d.forbidden {
		if f.isOption(key) {
			return usage.Errorf("%s", f.refusal(flag))
		}
	}
	return nil
}
