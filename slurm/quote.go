package slurm

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// maxWord bounds what goes into one #SBATCH line or shell word: PATH_MAX, beyond which no path
// works anyway.
const maxWord = 4096

// checkWord refuses what must not stand in a line of a script: control characters (a newline
// would start a line of its own), text that is not UTF-8 (the spec file is JSON and could
// not hold it), and what is too long to be meant.
func checkWord(s string) error {
	if len(s) > maxWord {
		return fmt.Errorf("it is longer than %d bytes", maxWord)
	}
	if !utf8.ValidString(s) {
		return errors.New("it is not UTF-8 text")
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("it holds the control character %+q; a line break or the like cannot go into a script", r)
		}
	}
	return nil
}

// plain tells whether every byte of s stands for itself, in every place, both for a shell and
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
