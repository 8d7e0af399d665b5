package jobfile

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/redact"
	words "ddpbatch/internal/text"
)

// Setting is the value of a key in a file or an override, with its position.
type Setting struct {
	Key    string `json:"key"` // dotted
	Value  any    `json:"value"`
	File   string `json:"file"`   // as it was given, or "--set a.b"
	Line   int    `json:"line"`   // from 1; 0 for a --set
	Column int    `json:"column"` // from 1, in characters; 0 for a --set

	path toml.Key
}

// Settings returns the settings of the defaults and of overrides, without those that others override. It does not check rules between keys,
// which apply only to whole jobs.
func (d *Defaults) Settings(sets []string) ([]Setting, error) {
	c := newChecker("", nil)
	c.isPart, c.defaults = true, d
	values, root := map[string]any{}, &position{}
	c.override(values, root, sets)
	values, root = d.beneath(values, root)
	dropAlternatives(values, root)
	c.table(schema(), nil, values, root)
	if _, err := c.found(); err != nil {
		return nil, err
	}
	return c.settings(schema(), nil, values, root), nil
}

// JobSettings returns the settings of a job, of its overrides, and of the defaults. It checks the job as Parse does.
func (d *Defaults) JobSettings(name, dir string, src []byte, sets []string) ([]Setting, []Fault, error) {
	c := newChecker(name, src)
	c.defaults = d
	values, root := c.parse(dir, sets)
	warnings, err := c.found()
	if err != nil {
		return nil, warnings, err
	}
	return c.settings(schema(), nil, values, root), warnings, nil
}

// settings returns the settings of one table and of those below it: its own first, and all sorted by name.
func (c *checker) settings(n *node, key toml.Key, values map[string]any, at *position) (all []Setting) {
	var tables []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		child, path, where := n.childOrSwept(name), below(key, name), at.below(name)
		if _, isTable := values[name].(map[string]any); isTable && child.isTable() {
			tables = append(tables, name)
			continue
		}
		s := Setting{Key: path.String(), Value: values[name], path: path}
		if where.text != "" && child.read != nil && child.read(emptyJob(), path, s.Value) != nil {
			s.Value = where.text // as in value
		}
		s.File, s.Line, s.Column = c.place(where)
		all = append(all, s)
	}
	for _, name := range tables {
		table, _ := values[name].(map[string]any)
		all = append(all, c.settings(n.childOrSwept(name), below(key, name), table, at.below(name))...)
	}
	return all
}

// childOrSwept is like child, but returns a node without a reader for keys that [sweep] has.
func (n *node) childOrSwept(name string) *node {
	if child := n.child(name); child != nil {
		return child
	}
	return &node{}
}

// Redacted returns the setting without what may be secret.
func (s Setting) Redacted() Setting {
	switch v := s.Value.(type) {
	case string:
		s.Value = redact.Text(v)
	case []any:
		items := slices.Clone(v)
		for i, item := range items {
			if list, isList := item.([]any); isList { // one of several commands
				items[i] = Setting{Value: list}.Redacted().Value
				continue
			}
			text, isText := item.(string)
			before := ""
			if i > 0 {
				before, _ = v[i-1].(string)
			}
			if isText { // it may be a word of a command
				items[i] = redact.Words([]string{before, text})[1]
			}
		}
		s.Value = items
	case []map[string]any:
		s.Value = redactTables(v)
	}
	if redact.Named(s.Key) {
		s.Value = redact.Blank
	}
	return s
}

// CommandSet returns the argument of --set that sets the job's command, without what may be secret.
func (j *Job) CommandSet() string {
	value, _ := tomlValue(redact.Words(j.Launch.Command)) // text can always be written
	return "launch.command=" + value
}

// redactTables returns a list of tables without what may be secret.
func redactTables(tables []map[string]any) []map[string]any {
	shown := make([]map[string]any, len(tables))
	for i, table := range tables {
		shown[i] = make(map[string]any, len(table))
		for name, value := range table {
			shown[i][name] = Setting{Key: name, Value: value}.Redacted().Value
		}
	}
	return shown
}

// Origin returns the position of the setting in the form that faults use.
func (s Setting) Origin() string { return Fault{File: s.File, Line: s.Line, Column: s.Column}.where() }

// WriteTOML writes settings in the form of a job file. If origins, each setting has a comment with its position.
func WriteTOML(w io.Writer, settings []Setting, origins bool) error {
	out := bufio.NewWriter(w)
	var open toml.Key
	for i, s := range settings {
		if table := s.path[:len(s.path)-1]; !slices.Equal(table, open) {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "[%s]\n", table)
			open = table
		}
		value, err := tomlValue(s.Value)
		if err != nil {
			return fmt.Errorf("write %s: %w", s.Key, err)
		}
		fmt.Fprintf(out, "%s = %s", s.path[len(s.path)-1:], value)
		if origins {
			fmt.Fprintf(out, "  # %s", words.Clean(s.Origin()))
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// tomlValue formats a value on one line. It escapes characters that may control a terminal.
func tomlValue(v any) (string, error) {
	if tables, ok := v.([]map[string]any); ok { // the encoder would write them on lines of their own
		return inlineTables(tables)
	}
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).Encode(map[string]any{"v": v}); err != nil {
		return "", err
	}
	var safe strings.Builder
	for _, r := range strings.TrimSuffix(strings.TrimPrefix(out.String(), "v = "), "\n") { // unsafe characters are only in strings
		if words.Unsafe(r) {
			fmt.Fprintf(&safe, `\u%04x`, r)
		} else {
			safe.WriteRune(r)
		}
	}
	return safe.String(), nil
}

// inlineTables formats a list of tables on one line.
func inlineTables(tables []map[string]any) (string, error) {
	items := make([]string, len(tables))
	for i, table := range tables {
		var keys []string
		for _, name := range slices.Sorted(maps.Keys(table)) {
			value, err := tomlValue(table[name])
			if err != nil {
				return "", err
			}
			keys = append(keys, toml.Key{name}.String()+" = "+value)
		}
		items[i] = "{ " + strings.Join(keys, ", ") + " }"
	}
	return "[" + strings.Join(items, ", ") + "]", nil
}
