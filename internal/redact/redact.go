package redact

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ddpbatch/internal/text"
)

// Blank stands in the place of a value that may be secret.
const Blank = "***"

// Named reports whether the value of a variable or key of this name may be secret.
func Named(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// assignment finds the names that something is assigned to, as a shell, sbatch's --export and TOML write it.
var assignment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9_.-]+(?:=|[ \t]+=[ \t]*)`) })

// named finds these, and flags that the next word is for.
var named = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(assignment().String() + `|--[A-Za-z0-9_.-]+[ \t]+`)
})

// Text is text with the values blanked that it gives to names that may hold secrets: NAME=value, where value is a word as a shell reads
// it, NAME = value, and --NAME value, where that [FollowsFlag].
func Text(text string) string {
	var out strings.Builder
	done := 0 // so much of text is in out
	for _, at := range named().FindAllStringIndex(text, -1) {
		name := strings.TrimRight(text[at[0]:at[1]], "= \t")
		if at[0] < done || !Named(name) {
			continue
		}
		end := wordEnd(text, at[1], quoteAt(text, at[0]))
		if end == at[1] {
			continue // an empty value, or a comparison
		}
		if isFlag := !strings.Contains(text[at[0]:at[1]], "="); isFlag && !FollowsFlag(name, strings.Trim(text[at[1]:end], `"'`)) {
			continue
		}
		out.WriteString(text[done:at[1]] + Blank)
		done = end
	}
	return out.String() + text[done:]
}

// Words are the words of a command line, never nil, with the values blanked that may be secret: all that one assigns to such a name, what
// [Text] blanks, and a word that [FollowsFlag].
func Words(words []string) []string {
	shown := make([]string, len(words))
	for i, word := range words {
		name, _, assigns := strings.Cut(word, "=")
		switch {
		case i > 0 && FollowsFlag(words[i-1], word):
			shown[i] = Blank
		case assigns && Named(name) && !strings.ContainsAny(name, " \t\n;&|"):
			shown[i] = name + "=" + Blank
		default:
			shown[i] = Text(word)
		}
	}
	return shown
}

// FollowsFlag reports whether the word behind a flag of a command line looks like a secret. Behind a flag for a password any word does.
// Behind one for a token or an API key a word does that is [Written].
// Behind another flag, such as --sort-key, the word must also have a digit.
func FollowsFlag(flag, word string) bool {
	if !strings.HasPrefix(flag, "--") || strings.Contains(flag, "=") || word == "" || strings.IndexByte("-$/~.", word[0]) >= 0 {
		return false
	}
	upper := strings.ToUpper(flag)
	if isAside(upper) {
		return false
	}
	if strings.Contains(upper, "PASSWORD") || strings.Contains(upper, "SECRET") {
		return true
	}
	return Written(flag, word) &&
		(strings.Contains(upper, "TOKEN") || strings.Contains(upper, "API") || strings.ContainsAny(word, "0123456789"))
}

// isAside reports whether a name in capitals that may hold a secret is about something else.
func isAside(name string) bool {
	parts := []string{"TOKENIZ", "TOKENS", "KEYBOARD", "KEYS", "_FILE", "-FILE", "_PATH", "-PATH", "_DIR", "-DIR"}
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
}

// Shown is how many bytes of a setting's text a message about it shows.
const Shown = 60

// Quoted is Text in quotes, for a message; of one of more bytes than most the beginning, and three dots.
func Quoted(s string, most int) string {
	s = Text(s)
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(text.Cut(s, most)) + "..."
}

// quoteAt is the quote that is open at text[at], as far as its line tells; 0: none.
func quoteAt(text string, at int) (quote byte) {
	for i := strings.LastIndexByte(text[:at], '\n') + 1; i < at; i++ {
		switch c := text[i]; {
		case c == '\\' && quote != '\'':
			i++
		case c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		}
	}
	return quote
}

// wordEnd is where the word of a shell ends that goes on at text[at]. The end of a quote that is open there is not part of it.
func wordEnd(text string, at int, open byte) int {
	quote, parens := open, 0
	for i := at; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote != '\'':
			i++
		case quote != 0 && c == quote:
			if quote = 0; open != 0 && ends(text[i+1:]) {
				return i // the quote stands around the whole word
			}
		case quote != 0:
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '(' || c == '{':
			parens++
		case (c == ')' || c == '}') && parens > 0:
			parens--
		case parens == 0 && strings.IndexByte(" \t\n\r;&|<>)", c) >= 0:
			return i
		}
	}
	return len(text)
}

// ends tells whether a word is over before rest.
func ends(rest string) bool {
	return rest == "" || strings.IndexByte(" \t\n\r;&|<>),:.]}", rest[0]) >= 0
}

// shortest is how long a value must be to be looked for in a text: "1" and "false" are no secrets, and are in most texts.
const shortest = 8

// Values blanks the values of the variables of environ ("NAME=value" each) that may be secret, wherever a text holds them.
type Values struct{ replacer *strings.Replacer }

// ValuesOf takes the values of environ, of several lines each line for itself, as texts are shown by lines. What has fewer than 8 bytes is
// not looked for.
func ValuesOf(environ []string) Values {
	var values []string
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !Named(name) {
			continue
		}
		for line := range strings.Lines(value) {
			if line = strings.TrimRight(line, "\r\n"); len(line) >= shortest {
				values = append(values, line)
			}
		}
	}
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) }) // one may be the beginning of another
	pairs := make([]string, 0, 2*len(values))
	for _, value := range values {
		pairs = append(pairs, value, Blank)
	}
	return Values{strings.NewReplacer(pairs...)}
}

// In is text without the values.
func (v Values) In(text string) string { return v.replacer.Replace(text) }

// InLines is lines without the values. It changes lines itself.
func (v Values) InLines(lines []string) []string {
	for i, line := range lines {
		lines[i] = v.In(line)
	}
	return lines
}

// Written tells whether a value that stands beside a name is a secret itself, as far as one can tell: the name is one of a secret's, and
// the value no variable, command, path or number. "HF_TOKEN=$(cat token)" holds none, and "--max-tokens=4096" is about something else.
func Written(name, value string) bool {
	if !Named(name) || isAside(strings.ToUpper(strings.TrimLeft(name, "-"))) {
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
