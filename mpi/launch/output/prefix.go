package output

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// DefaultPrefix labels a line with the worker that wrote it.
const DefaultPrefix = "[${host} ${rank}] "

const maxPrefix = 256 // bytes

// Worker is the worker that a stream belongs to, as a prefix may name it.
type Worker struct {
	Host            string
	Rank, LocalRank int
	Role            string // "": "default"
}

// ParsePrefix tells what is wrong with a prefix, as Config has it: macros are written ${rank} or $rank, and $$ is one
// dollar (Python's string.Template, as TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE is). Macros that are not known are errors.
func ParsePrefix(s string) error {
	if len(s) > maxPrefix {
		return fmt.Errorf("the prefix of log lines has %d bytes, more than %d", len(s), maxPrefix)
	}
	if strings.ContainsAny(s, "\n\r\x00") {
		return fmt.Errorf("the prefix of log lines %q does not stay on its line", s)
	}
	_, err := expand(s, Worker{})
	return err
}

// Label is a prefix that ParsePrefix has found good, for the lines of one worker.
func Label(prefix string, w Worker) string {
	s, err := expand(prefix, w)
	if err != nil {
		return prefix
	}
	return s
}

func expand(s string, w Worker) (string, error) {
	var b strings.Builder
	for {
		text, rest, found := strings.Cut(s, "$")
		b.WriteString(text)
		if !found {
			return b.String(), nil
		}
		if after, ok := strings.CutPrefix(rest, "$"); ok {
			b.WriteByte('$')
			s = after
			continue
		}
		name, after, err := macro(rest)
		if err != nil {
			return "", fmt.Errorf("the prefix of log lines: %w", err)
		}
		value, ok := w.value(name)
		if !ok {
			return "", fmt.Errorf("the prefix of log lines: there is no ${%s}; there are ${host}, ${rank}, ${local_rank} and ${role_name}", name)
		}
		b.WriteString(value)
		s = after
	}
}

// macro takes the name that follows a dollar off s.
func macro(s string) (name, rest string, err error) {
	if inner, ok := strings.CutPrefix(s, "{"); ok {
		name, rest, ok = strings.Cut(inner, "}")
		if !ok {
			return "", "", errors.New("a ${ has no }")
		}
		return name, rest, nil
	}
	end := 0
	for end < len(s) && (letter(s[end]) || end > 0 && '0' <= s[end] && s[end] <= '9') {
		end++
	}
	if end == 0 {
		return "", "", errors.New("a $ is followed by no name; a dollar itself is written $$")
	}
	return s[:end], s[end:], nil
}

func letter(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func (w Worker) value(name string) (string, bool) {
	switch name {
	case "host":
		return printable(w.Host), true
	case "rank":
		return strconv.Itoa(w.Rank), true
	case "local_rank":
		return strconv.Itoa(w.LocalRank), true
	case "role_name":
		if w.Role == "" {
			return "default", true
		}
		return printable(w.Role), true
	}
	return "", false
}

// printable is a name that does nothing to a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
