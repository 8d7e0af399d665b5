package text

import (
	"strings"
	"unicode"
)

// Unsafe reports whether a character can control a terminal, or change the direction of the text after it.
func Unsafe(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Clean is text from a file as one line that does nothing to a terminal.
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
