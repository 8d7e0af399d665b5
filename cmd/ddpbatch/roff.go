package main

import (
	"strings"
)

// A roffPage builds a manual page with the macros of man(7).
type roffPage struct{ strings.Builder }

// roffText escapes what roff would interpret. A dash stays a dash, because it precedes flags.
var roffText = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ", "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`)

// request writes a line that begins with a macro.
func (p *roffPage) request(macro string, words ...string) {
	p.WriteString("." + macro)
	for _, word := range words {
		p.WriteString(` "` + strings.ReplaceAll(roffText.Replace(word), `"`, `\(dq`) + `"`)
	}
	p.WriteByte('\n')
}

// roffWidth is the greatest length of a line of the source.
const roffWidth = 78

// prose writes text in lines of that length, which roff fills again.
func (p *roffPage) prose(text string) {
	var line string
	for word := range strings.FieldsSeq(text) {
		word = roffText.Replace(word)
		if line == "" {
			if word[0] == '.' {
				word = `\&` + word // otherwise it would be a request
			}
			line = word
			continue
		}
		if len(line)+1+len(word) > roffWidth || endsSentence(line) {
			p.WriteString(line + "\n")
			if line = word; word[0] == '.' {
				line = `\&` + word
			}
			continue
		}
		line += " " + word
	}
	if line != "" {
		p.WriteString(line + "\n")
	}
}

// endsSentence reports whether line ends a sentence, which in roff must end a line.
func endsSentence(line string) bool {
	return strings.HasSuffix(line, ".") && !strings.HasSuffix(line, "..")
}

// paragraph begins a new paragraph.
func (p *roffPage) paragraph(text string) {
	p.request("PP")
	p.prose(text)
}

// item writes a tag in bold, and its indented description below.
func (p *roffPage) item(tag, text string) {
	p.request("TP")
	p.request("B", tag)
	p.prose(text)
}

// lines writes lines unchanged.
func (p *roffPage) lines(text string) {
	p.WriteString(".in +4n\n")
	p.request("EX")
	for line := range strings.Lines(text) {
		line = roffText.Replace(strings.TrimSuffix(line, "\n"))
		if strings.HasPrefix(line, ".") {
			line = `\&` + line
		}
		p.WriteString(line + "\n")
	}
	p.request("EE")
	p.request("in")
}
