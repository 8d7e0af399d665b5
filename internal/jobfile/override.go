package jobfile

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// An override is one --set: "train.epochs=2".
type override struct {
	key   string // as it was typed
	path  toml.Key
	value any
	text  string // the value as it was typed
}

// override lays the overrides over the file's tables, the later over the earlier. Tables on the way are made where
// the file has none; lists are only replaced whole.
func (c *checker) override(values map[string]any, root *place, sets []string) {
	for i, set := range sets {
		o, problem := parseOverride(set)
		c.sets = append(c.sets, o)
		at := &place{set: i + 1, text: o.text}
		if problem == "" {
			problem = o.lay(values, root, at)
		}
		if problem != "" {
			c.fault(at, o.path, "%s", problem)
		}
	}
}

func parseOverride(set string) (o override, problem string) {
	key, text, ok := strings.Cut(set, "=")
	o = override{key: key, path: strings.Split(key, "."), text: text}
	switch {
	case !ok || slices.Contains(o.path, "") || len(o.path) > maxDepth:
		return o, "write an override as --set table.key=value"
	case !utf8.ValidString(set):
		return o, "an override must be UTF-8 text"
	case len(set) > maxSize:
		return o, "the value is too long: put it into the job file, or into a file of its own"
	}
	o.value = overrideValue(text)
	return o, ""
}

// overrideValue reads what was typed after the equals sign as a TOML value. Anything else, and a
// bare date or time, which no key takes, is text.
func overrideValue(text string) any {
	src := "v = " + text
	if _, deep := locate(src); deep >= 0 {
		return text
	}
	var values map[string]any
	_, err := toml.Decode(src, &values)
	if _, isTime := values["v"].(time.Time); err != nil || len(values) != 1 || isTime {
		return text
	}
	return values["v"]
}

// lay puts the value into the tables, and its place among their places.
func (o override) lay(values map[string]any, root, at *place) (problem string) {
	last := len(o.path) - 1
	p := root
	for i, name := range o.path[:last] {
		v, given := values[name]
		if !given {
			v = map[string]any{}
			values[name] = v
			p.put(name, &place{set: at.set})
		}
		table, ok := v.(map[string]any)
		if !ok {
			return o.path[:i+1].String() + " is not a table, so that nothing in it can be set: set it whole"
		}
		sub := p.below(name)
		p.put(name, sub)
		values, p = table, sub
	}
	values[o.path[last]] = o.value
	p.put(o.path[last], at)
	return ""
}
