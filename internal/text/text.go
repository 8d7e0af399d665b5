package text

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Unsafe reports whether a character can control a terminal, or change the direction of the text after it.
func Unsafe(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Clean returns text from a file as one line that does not affect a terminal.
func Clean(text string) string { return cleanBut(text, "") }

// CleanLines is Clean for text of several lines.
func CleanLines(text string) string { return cleanBut(text, "\n\t") }

// cleanBut is Clean, but keeps the characters in stay.
func cleanBut(text, stay string) string {
	return strings.Map(func(r rune) rune {
		if Unsafe(r) && !strings.ContainsRune(stay, r) {
			return ' '
		}
		return r
	}, text)
}

// Cut returns a text, or as much of its beginning as fits into most bytes in whole characters.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > max(0, most-utf8.UTFMax) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Dir is the user's working directory, absolute. Paths are read and written relative to it.
type Dir string

// Abs resolves a path that a user typed.
func (d Dir) Abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(string(d), path)
}

// Short returns path as a user in the directory would type it.
func (d Dir) Short(path string) string {
	if rel, err := filepath.Rel(string(d), path); err == nil && !strings.HasPrefix(rel, "..") && d != "/" {
		return rel
	}
	return path
}

// Named returns a path for a sentence: as a user would type it, and quoted if it could affect a terminal, or if its end would not be clear.
func (d Dir) Named(path string) string {
	text := d.Short(d.Abs(path))
	if strings.ContainsFunc(text, Unsafe) {
		return strconv.Quote(text)
	}
	return text
}

// Few names the first elements of a list, and counts the others.
func Few[T any](list []T, most int) string {
	var b strings.Builder
	for i, one := range list[:min(most, len(list))] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, one)
	}
	if more := len(list) - most; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// Choice lists words of which one must be chosen: "a", "b" or "c". Without words it returns "".
func Choice(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = strconv.Quote(w)
	}
	last := len(q) - 1
	if last <= 0 {
		return strings.Join(q, "")
	}
	return strings.Join(q[:last], ", ") + " or " + q[last]
}

// Plural returns a number with its noun: 1 node, 2 nodes.
func Plural[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(int64(n), 10) + " " + noun + "s"
}

// Quoted returns text from a file in quotation marks, shortened.
func Quoted(text string, most int) string { return strconv.Quote(Shortened(text, most)) }

// Shortened returns text for an error message. If it is longer than most bytes, only its beginning and end remain, together at most that
// long, in whole characters.
func Shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	head := Cut(text, most*2/3)
	start := len(text) - (most - most*2/3)
	for end := min(len(text), start+utf8.UTFMax); start < end && !utf8.RuneStart(text[start]); {
		start++
	}
	return fmt.Sprintf("%s ... %s ... %s", head, Plural(start-len(head), "byte"), text[start:])
}

// SignalName returns SIGTERM for 15, and "signal 35" for a signal without a name.
func SignalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "signal " + strconv.Itoa(int(s))
}
