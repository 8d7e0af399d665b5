package slurm

import (
	"strings"
	"unicode"

	"ddpbatch/internal/redact"
)

// maxWords bounds, in bytes, what of Slurm's words goes into an error.
const maxWords = 600

// unreachableWords are what Slurm's clients print when they could not ask, or do not know whether they were heard: the controller does not
// answer, or hands over to its backup, or the daemon that authenticates them does not answer, or they do not know where it is.
var unreachableWords = []string{
	"Unable to contact slurm controller",
	"Protocol authentication error",
	"Could not establish a configuration source",
	"Unable to process configuration file",
	"Socket timed out on send/recv operation",
	"Communication connection failure",
	"Communication shutdown failure",
	"Message send failure",
	"Message receive failure",
	"Zero Bytes were transmitted or received",
	"Slurm backup controller in standby mode",
	"Controller is in standby mode",
}

// unheardWords are those after which the job was certainly not taken: there was no connection, or a backup controller declined.
var unheardWords = []string{
	"connect failure",
	"Protocol authentication error",
	"Could not establish a configuration source",
	"Unable to process configuration file",
	"in standby mode",
}

func saysUnreachable(words string) bool {
	for _, w := range unreachableWords {
		if strings.Contains(words, w) {
			return true
		}
	}
	return false
}

// slurmWords puts what a command printed on one line, without the prefixes that name the
// command and the level ("sbatch: error: "), and without control characters.
func slurmWords(text []byte) string {
	var lines []string
	for line := range strings.Lines(string(text)) {
		line = strings.Map(printable, strings.TrimSpace(line))
		line = trimPrefixes(line)
		if line == "" || strings.HasPrefix(line, "Try \"") {
			continue // `Try "sbatch --help" for more information` sends the reader to the wrong program
		}
		lines = append(lines, line)
	}
	words := redact.Text(strings.Join(lines, "; "))
	if len(words) > maxWords {
		words = strings.ToValidUTF8(words[:maxWords], "") + "..."
	}
	return words
}

// trimPrefixes cuts the names that Slurm's commands and its log put before their words.
func trimPrefixes(line string) string {
	for _, prefix := range []string{"sbatch:", "squeue:", "scontrol:", "sacct:", "scancel:", "fatal:", "error:"} {
		line = strings.TrimSpace(strings.TrimPrefix(line, prefix))
	}
	return line
}

// printable drops control characters, and what was not UTF-8.
func printable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case unicode.IsControl(r), r == unicode.ReplacementChar:
		return -1
	}
	return r
}
