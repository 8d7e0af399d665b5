package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// size is a number of bytes: in a unit on a terminal, as it is in a pipe.
func (t *table) size(n int64) string {
	if !t.terminal || n < 1<<10 {
		return strconv.FormatInt(n, 10)
	}
	value, unit := float64(n), -1
	for ; value >= 1<<10 && unit < len("KMGTPE")-1; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.4g %ciB", value, "KMGTPE"[unit])
}

// bytes is a size in a sentence, where no heading says that it is one.
func (t *table) bytes(n int64) string {
	if !t.terminal || n < 1<<10 {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	return t.size(n)
}

// ratio is how much of the tensors' bytes is left on disk.
func ratio(stored, raw int64) string {
	if raw <= 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(stored)/float64(raw), 'f', 3, 64)
}

func baseText(step int64) string {
	if step < 0 {
		return "-"
	}
	return strconv.FormatInt(step, 10)
}

func metricsText(metrics map[string]float64) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(metrics)) {
		words = append(words, key+"="+strconv.FormatFloat(metrics[key], 'g', 6, 64))
	}
	return orDash(strings.Join(words, " "))
}

func pinnedText(labels []string) string {
	words := slices.Clone(labels)
	for i, label := range words {
		if label == "" {
			words[i] = "yes"
		}
	}
	return orDash(strings.Join(words, ","))
}

func timeText(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}

// named is a path for a sentence: as a person would type it, and quoted where it could do something to a terminal, or hide where it ends.
func (e *env) named(path string) string {
	text := e.short(e.abs(path))
	if strings.ContainsFunc(text, unsafe) {
		return strconv.Quote(text)
	}
	return text
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

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
