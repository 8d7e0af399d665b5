package slurm

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord bounds the length of one #SBATCH line or shell word in bytes. It is PATH_MAX, the longest path that
// works.
const maxWord = 4096

// checkWord refuses text that must not be in a line of a script: control characters (a newline
// would start a new line), text that is not UTF-8 (the spec file is JSON and cannot
// hold it), and text that is too long.
func checkWord(s string) error {
	if len(s) > maxWord {
		return fmt.Errorf("it is longer than %d bytes", maxWord)
	}
	if !utf8.ValidString(s) {
		return errors.New("it is not UTF-8 text")
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("it contains the control character %+q, which cannot be written into a script", r)
		}
	}
	return nil
}

// plain reports whether every byte of s stands for itself, in every place, both for a shell and
// for Slurm's reader of #SBATCH lines.
func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '_' || c == '-' || c == '.' || c == '/' || c == ':' || c == '=' || c == ',' || c == '@' || c == '%' || c == '+':
		default:
			return false
		}
	}
	return s != ""
}

// quoteDirective quotes word, an option of sbatch that has passed checkWord, so that sbatch reads
// it after "#SBATCH " as that one word.
//
// Slurm reads these lines by a grammar of its own, which is not the shell's (src/sbatch/opt.c;
// tried with 22.05): spaces separate words; " and ' group, and only the same quote closes;
// a backslash makes the next byte stand for itself everywhere, inside single quotes too; a # outside
// quotes ends the line, even within a word; an open quote at the end is fatal, and so is a word that
// begins with a colon. There are no variables and no other escapes.
//
// So the value of "--name=value" goes into double quotes, with a backslash before each " and \.
func quoteDirective(word string) string {
	if plain(word) {
		return word
	}
	name, value, found := strings.Cut(word, "=")
	if !found || !plain(name) {
		return doubleQuoted(word)
	}
	return name + "=" + doubleQuoted(value)
}

func doubleQuoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// ShellQuote quotes word so that a POSIX shell reads it as that one word, unchanged, as an
// argument of a command. word may contain any byte but NUL, which arguments cannot contain.
func ShellQuote(word string) string {
	if plain(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// ShellJoin quotes each word and joins them with blanks: a command line that can be pasted
// into a shell.
func ShellJoin(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = ShellQuote(word)
	}
	return strings.Join(quoted, " ")
}

// ShellAssign formats the variable "NAME=value" as a shell assignment. NAME must be a valid
// name; value may contain any byte but NUL.
func ShellAssign(variable string) string {
	name, value, _ := strings.Cut(variable, "=")
	return name + "=" + ShellQuote(value)
}
