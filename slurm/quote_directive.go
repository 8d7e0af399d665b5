package slurm

import "strings"

// quoteDirective writes word, an option of sbatch that has passed checkWord, as it must
// stand after "#SBATCH " to be read back as that one word.
//
// Slurm reads these lines by a grammar of its own, which is not the shell's (src/sbatch/opt.c;
// tried with 22.05): blanks part words; " and ' group, and nothing but the same quote closes;
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
