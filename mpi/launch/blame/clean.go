package blame

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// escape matches what a terminal takes for a command (ECMA-48): CSI sequences, strings such as the window's title up to their
// end, and other escape sequences.
var escape = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]?|\x1b[PX^_\\]][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]?")
})

// clean makes one line of a log harmless and readable: what a terminal would have shown of it in the end, without colours,
// controls and characters that change the direction of text, in at most width runes.
func clean(line string, width int) string {
	const looked = 8 << 10 // bytes; the rest is not shown, and is not worth the time
	line = shown(line)
	line = escape().ReplaceAllString(strings.ToValidUTF8(line[:min(len(line), looked)], "?"), "")
	line = strings.ReplaceAll(line, "\t", "    ")
	line = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return -1
		case !unicode.IsPrint(r): // the directions, too: they are of category Cf
			return '?'
		}
		return r
	}, line)
	return shorten(line, width)
}

// shown is what is left to see of a line that writes over itself, as progress bars do.
func shown(line string) string {
	line = strings.TrimRight(line, " \t\r\n")
	return line[strings.LastIndexByte(line, '\r')+1:]
}

func shorten(s string, width int) string {
	n := 0
	for i := range s {
		if n++; n > width {
			runes := []rune(s[:i])
			return string(runes[:width-3]) + "..."
		}
	}
	return s
}

// wrap breaks words at width, into at most so many lines; where there are more, the last one ends in dots.
func wrap(text string, width, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		word = shorten(word, width)
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] = shorten(lines[most-1]+strings.Repeat(".", width), width)
	}
	return lines
}
