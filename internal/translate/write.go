package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	words "ddpbatch/internal/text"
)

// A section is one table of the job file, with comments below its keys.
type section struct {
	keys  []keyLine
	notes []note
}

// A keyLine is a key with its value (string, int, bool, []string, []int) and a comment.
type keyLine struct {
	name    string
	value   any
	comment string
}

// A note is a comment about a line of the script; line 0 means none.
type note struct {
	line int
	text string
}

// put sets a key, and replaces an earlier value.
func (s *section) put(name string, value any, comment string) {
	k := keyLine{name, value, comment}
	if i := slices.IndexFunc(s.keys, func(k keyLine) bool { return k.name == name }); i >= 0 {
		s.keys[i] = k
		return
	}
	s.keys = append(s.keys, k)
}

func (s *section) note(line int, format string, args ...any) {
	n := note{line, fmt.Sprintf(format, args...)}
	if !slices.Contains(s.notes, n) {
		s.notes = append(s.notes, n)
	}
}

// write writes the text of a section, below its header.
func (s *section) write(b *strings.Builder, head string) {
	if len(s.keys)+len(s.notes) == 0 {
		return
	}
	if head != "" {
		fmt.Fprintf(b, "\n%s\n", head)
	}
	for _, k := range s.keys {
		line := k.name + " = " + tomlValue(k.value)
		switch {
		case k.comment != "" && strings.Contains(line, "\n"):
			line = "# " + comment(k.comment) + "\n" + line
		case k.comment != "":
			line += "  # " + comment(k.comment)
		}
		b.WriteString(line + "\n")
	}
	slices.SortStableFunc(s.notes, func(a, b note) int { return cmp.Compare(a.line, b.line) })
	for _, n := range s.notes {
		if n.line > 0 {
			fmt.Fprintf(b, "# line %d: %s\n", n.line, comment(n.text))
			continue
		}
		fmt.Fprintf(b, "# %s\n", comment(n.text))
	}
}

// comment returns text that ends neither its line nor the comment.
func comment(text string) string { return words.Clean(strings.ToValidUTF8(text, "\ufffd")) }

// tomlValue formats a value. Long lists of texts have one item per line.
func tomlValue(value any) string {
	switch v := value.(type) {
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		return strconv.FormatBool(v)
	case string:
		return tomlString(v)
	case []int:
		items := make([]string, len(v))
		for i, n := range v {
			items[i] = strconv.Itoa(n)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case []string:
		items := make([]string, len(v))
		for i, text := range v {
			items[i] = tomlString(text)
		}
		if line := strings.Join(items, ", "); len(line) <= maxList {
			return "[" + line + "]"
		}
		return "[\n  " + strings.Join(items, ",\n  ") + ",\n]"
	}
	return `""`
}

// maxList is the greatest length of a list on one line.
const maxList = 100

// tomlString formats a text as a basic string, so that no byte of it can end the string or affect a terminal.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case words.Unsafe(r) && r <= 0xffff:
			fmt.Fprintf(&b, `\u%04X`, r)
		case words.Unsafe(r):
			fmt.Fprintf(&b, `\U%08X`, r)
		case r == utf8.RuneError:
			b.WriteString("\ufffd")
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
