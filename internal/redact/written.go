package redact

import (
	"slices"
	"strings"
)

// Written tells whether a value that stands beside a name is a secret itself, as far as one can tell: the name is one of a secret's, and
// the value no variable, command, path or number. "HF_TOKEN=$(cat token)" holds none, and "--max-tokens=4096" is about something else.
func Written(name, value string) bool {
	upper := strings.ToUpper(strings.TrimLeft(name, "-"))
	aside := []string{"TOKENIZ", "TOKENS", "KEYBOARD", "KEYS", "_FILE", "-FILE", "_PATH", "-PATH", "_DIR", "-DIR"}
	if !Named(name) || slices.ContainsFunc(aside, func(part string) bool { return strings.Contains(upper, part) }) {
		return false
	}
	value = strings.Trim(value, `"'`)
	isNumber := strings.Trim(value, "0123456789.,:_-") == ""
	return len(value) >= shortest && !isNumber && !strings.ContainsAny(value, "$`*") && strings.IndexByte("/~.", value[0]) < 0
}

// FindWritten is the first name that a text assigns a secret to that is [Written]; empty: there is none.
func FindWritten(text string) string {
	done := 0
	for _, at := range assignment().FindAllStringIndex(text, -1) {
		if at[0] < done {
			continue
		}
		name := strings.TrimRight(text[at[0]:at[1]], "= \t")
		end := wordEnd(text, at[1], quoteAt(text, at[0]))
		if Named(name) {
			done = end
		}
		if Written(name, text[at[1]:end]) {
			return name
		}
	}
	return ""
}
