package redact

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ddpbatch/internal/text"
)

// Blank replaces a value that may be secret.
const Blank = "***"

// Named reports whether the value of a variable or key of this name may be secret.
func Named(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// assignment matches the name and the sign of an assignment, as a shell, sbatch's --export and TOML write it.
var assignment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9_.-]+(?:=|[ \t]+=[ \t]*)`) })

// named matches assignments, and flags whose value is the next word.
var named = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(assignment().String() + `|--[A-Za-z0-9_.-]+[ \t]+`)
})

// inAddress matches the password in an address such as docker://user:password@host, unless it is a variable of the shell.
var inAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(://[^\s/@:'"]*:)[^\s/@'"$][^\s/@'"]*@`) })

// Text blanks the values that a text gives to names that may hold secrets: NAME=value, where value is a word as a shell reads it, NAME =
// value, and --NAME value if that [FollowsFlag]. It also blanks passwords in addresses.
func Text(text string) string {
	var out strings.Builder
	done := 0 // text[:done] is in out
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
	return inAddress().ReplaceAllString(out.String()+text[done:], "${1}"+Blank+"@")
}

// Words returns the words of a command line with values blanked that may be secret: everything assigned to such a name, what [Text] blanks,
// and words that [FollowsFlag] accepts. It never returns nil.
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

// FollowsFlag reports whether the word after a flag of a command line looks like a secret. After a flag for a password any word does. After
// a flag for a token or an API key, a word does that is [Written]. After any other flag, such as --sort-key, the word must also contain a
// digit.
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

// isAside reports whether a name in upper case that may hold a secret is about something else.
func isAside(name string) bool {
	parts := []string{"TOKENIZ", "TOKENS", "KEYBOARD", "KEYS", "_FILE", "-FILE", "_PATH", "-PATH", "_DIR", "-DIR"}
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
}

// Shown is the number of bytes of a setting's text that messages show.
const Shown = 60

// Quoted returns Text(s) in quotes, for a message. It cuts a text of more than most bytes, and appends three dots.
func Quoted(s string, most int) string {
	s = Text(s)
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(text.Cut(s, most)) + "..."
}

// quoteAt returns the quote that is open at text[at], judging by its line; 0 if there is none.
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

// wordEnd returns the end of the shell word that continues at text[at]. If a quote is open there, its end is not part of the word.
func wordEnd(text string, at int, open byte) int {
	quote, parens := open, 0
	for i := at; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote != '\'':
			i++
		case quote != 0 && c == quote:
			if quote = 0; open != 0 && ends(text[i+1:]) {
				return i // the quote encloses the whole word
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

// ends reports whether a word ends before rest.
func ends(rest string) bool {
	return rest == "" || strings.IndexByte(" \t\n\r;&|<>),:.]}", rest[0]) >= 0
}

// shortest is the least length of a value that is looked for in a text: values such as "1" and "false" are not secrets, and occur in most
// texts.
const shortest = 8

// Values blanks the values of variables that may be secret wherever they occur in a text.
type Values struct{ replacer *strings.Replacer }

// ValuesOf returns the Values of environ ("NAME=value" entries). A value of several lines is taken line by line, as texts are shown by
// lines. Values of fewer than 8 bytes are not looked for.
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
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) }) // one value may be the beginning of another
	pairs := make([]string, 0, 2*len(values))
	for _, value := range values {
		pairs = append(pairs, value, Blank)
	}
	return Values{strings.NewReplacer(pairs...)}
}

// In returns text with the values blanked.
func (v Values) In(text string) string { return v.replacer.Replace(text) }

// InLines blanks the values in lines, and returns lines.
func (v Values) InLines(lines []string) []string {
	for i, line := range lines {
		lines[i] = v.In(line)
	}
	return lines
}

// Written reports whether a value given to a name looks like the secret itself: the name is one of a secret, and the value is not a
// variable, command, path or number. "HF_TOKEN=$(cat token)" holds no secret, and "--max-tokens=4096" is about something else.
func Written(name, value string) bool {
	if !Named(name) || isAside(strings.ToUpper(strings.TrimLeft(name, "-"))) {
		return false
	}
	value = strings.Trim(value, `"'`)
	isNumber := strings.Trim(value, "0123456789.,:_-") == ""
	return len(value) >= shortest && !isNumber && !strings.ContainsAny(value, "$`*") && strings.IndexByte("/~.", value[0]) < 0
}

// FindWritten returns the first name to which a text assigns a secret that is [Written], or "" if there is none.
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
