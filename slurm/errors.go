package slurm

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"ddpbatch/internal/redact"
)

var (
	// ErrNotInSlurm means that the environment does not describe a Slurm job.
	ErrNotInSlurm = errors.New("not inside a Slurm job")
	// ErrNoSlurm means that Slurm's commands are not on the PATH.
	ErrNoSlurm = errors.New("Slurm's commands are not on the PATH")
	// ErrUnreachable means that a command ran, but could not reach the cluster's controller.
	ErrUnreachable = errors.New("the Slurm controller cannot be reached")
	// ErrRefused means that Slurm got the request and refused it. The error that matches it is a [*RefusedError].
	ErrRefused = errors.New("Slurm refused")
	// ErrUnknownJob means that neither the controller nor accounting knows the job.
	ErrUnknownJob = errors.New("Slurm does not know the job")
	// ErrUnknownOption means that no release of sbatch has the option. Errors of [ParseOption] match it.
	ErrUnknownOption = errors.New("not an option of sbatch")
)

// RefusedError is Slurm's answer to a command that it did not carry out.
type RefusedError struct {
	Command string // "sbatch"
	Code    int    // the command's exit code
	Words   string // the message that it printed, on one line and without its own prefixes
}

func (e *RefusedError) Error() string {
	if e.Words == "" {
		return fmt.Sprintf("%s refused without a message (exit code %d)", e.Command, e.Code)
	}
	if advice := e.Advice(); advice != "" {
		return fmt.Sprintf("%s refused: %s; %s", e.Command, e.Words, advice)
	}
	return fmt.Sprintf("%s refused: %s", e.Command, e.Words)
}

// Is makes every RefusedError match [ErrRefused].
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// UnreachableError says why a command could not talk to the controller.
type UnreachableError struct {
	Command string
	Words   string // as in [RefusedError]
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s cannot reach the Slurm controller: %s; try again later, or run \"scontrol ping\" to see its state", e.Command,
		e.Words)
}

// Unheard reports whether the controller certainly did not get the command's request: no connection was made. After other errors, such as
// "Zero Bytes were transmitted or received" and time-outs, the controller may have carried out the request.
func (e *UnreachableError) Unheard() bool {
	return slices.ContainsFunc(notReceivedWords, func(words string) bool { return strings.Contains(e.Words, words) }) &&
		!strings.Contains(e.Words, "timed out")
}

// Is makes every UnreachableError match [ErrUnreachable].
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

// failure returns the error that a command's output means, or nil if its exit code is 0.
func failure(name string, out Output) error {
	if out.Code == 0 {
		return nil
	}
	words := slurmWords(out.Stderr)
	if words == "" {
		words = slurmWords(out.Stdout)
	}
	switch {
	case saysUnreachable(words):
		return &UnreachableError{Command: name, Words: words}
	case name != "sbatch" && strings.Contains(words, "Invalid job id specified"),
		name == "scontrol" && absentElement().MatchString(words):
		return ErrUnknownJob
	}
	return &RefusedError{Command: name, Code: out.Code, Words: words}
}

// absentElement matches what scontrol prints, to standard output, if the controller knows the array but not the
// element.
var absentElement = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|; )Job [0-9_+]+ not found($|; )`) })

// absent reports whether a command could not be run because the site does not have it.
func absent(err error) bool { return errors.Is(err, ErrNoSlurm) }

func saysUnreachable(words string) bool {
	return slices.ContainsFunc(unreachableWords, func(w string) bool { return strings.Contains(words, w) })
}

// unreachableWords are messages of Slurm's clients that mean that the request did not arrive, or may not have arrived: the controller does
// not answer or is handing over to its backup, the authentication daemon does not answer, or the client does not know where the controller
// is.
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

// notReceivedWords are the messages after which the job was certainly not accepted: there was no connection, or a backup controller
// declined.
var notReceivedWords = []string{
	"connect failure",
	"Protocol authentication error",
	"Could not establish a configuration source",
	"Unable to process configuration file",
	"in standby mode",
}

// slurmWords puts what a command printed on one line, without the prefixes that name the
// command and the level ("sbatch: error: "), and without control characters.
func slurmWords(text []byte) string {
	var lines []string
	for line := range strings.Lines(string(text)) {
		line = strings.Map(printable, strings.TrimSpace(line))
		line = trimPrefixes(line)
		if line == "" || strings.HasPrefix(line, "Try \"") {
			continue // `Try "sbatch --help" for more information` would send the reader to the wrong program
		}
		lines = append(lines, line)
	}
	words := redact.Text(strings.Join(lines, "; "))
	if len(words) > maxWords {
		words = strings.ToValidUTF8(words[:maxWords], "") + "..."
	}
	return words
}

// maxWords is how many bytes of Slurm's message go into an error.
const maxWords = 600

// trimPrefixes removes the prefixes that Slurm's commands and its log put before a message.
func trimPrefixes(line string) string {
	for _, prefix := range []string{"sbatch:", "squeue:", "scontrol:", "sacct:", "scancel:", "fatal:", "error:"} {
		line = strings.TrimSpace(strings.TrimPrefix(line, prefix))
	}
	return line
}

// printable drops control characters and invalid UTF-8, for strings.Map.
func printable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case unicode.IsControl(r), r == unicode.ReplacementChar:
		return -1
	}
	return r
}

// clip quotes text from outside for an error message, and shortens it to at most 80 bytes.
func clip(s string) string { return redact.Quoted(s, 80) }
