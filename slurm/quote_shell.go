package slurm

import "strings"

// ShellQuote writes word so that a POSIX shell reads it back as that one word, unchanged, as an
// argument of a command. Every byte but NUL, which no argument can hold, survives.
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

// ShellAssign writes the variable "NAME=value" as a shell assignment; NAME must be a valid
// name, value may be anything without NUL.
func ShellAssign(variable string) string {
	name, value, _ := strings.Cut(variable, "=")
	return name + "=" + ShellQuote(value)
}
