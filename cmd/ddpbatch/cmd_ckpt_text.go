package main

import (
	"strings"
	"unicode"
)

// unsafe reports whether a character can control a terminal, or change the direction of the text after it.
func unsafe(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// clean is text from a file as one line that does nothing to a terminal.
func clean(text string) string { return cleanBut(text, "") }

// cleanLines is clean for text of several lines.
func cleanLines(text string) string { return cleanBut(text, "\n\t") }

// cleanBut is clean, but keeps the characters in stay.
func cleanBut(text, stay string) string {
	return strings.Map(func(r rune) rune {
		if unsafe(r) && !strings.ContainsRune(stay, r) {
			return ' '
		}
		return r
	}, text)
}
