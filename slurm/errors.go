package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrNotInSlurm: the environment holds no Slurm job.
	ErrNotInSlurm = errors.New("not inside a Slurm job")
	// ErrNoSlurm: Slurm's commands are not on the PATH.
	ErrNoSlurm = errors.New("Slurm's commands are not on the PATH")
	// ErrUnreachable: a command ran, but could not talk to the cluster's controller.
	ErrUnreachable = errors.New("the Slurm controller cannot be reached")
	// ErrRefused: Slurm was asked and said no. The error that matches it is a [*RefusedError].
	ErrRefused = errors.New("Slurm refused")
	// ErrUnknownJob: neither the controller nor accounting knows the job.
	ErrUnknownJob = errors.New("Slurm does not know the job")
	// ErrUnknownOption: no release of sbatch has the option; matched by what [ParseOption] returns.
	ErrUnknownOption = errors.New("not an option of sbatch")
)

// RefusedError is Slurm's answer to a command that it did not carry out.
type RefusedError struct {
	Command string // "sbatch"
	Code    int    // the command's exit code
	Words   string // what it printed, on one line and without its own prefixes
}

func (e *RefusedError) Error() string {
	if e.Words == "" {
		return fmt.Sprintf("%s refused without a word (exit code %d)", e.Command, e.Code)
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
	return fmt.Sprintf("%s cannot reach the Slurm controller: %s; try again later, or run \"scontrol ping\" to see its state", e.Command, e.Words)
}

// Unheard tells whether the controller certainly did not get the command's request: there was no connection, or nothing to make it with.
// After others, such as "Zero Bytes were transmitted or received" and time-outs, it may have done what it was asked to.
func (e *UnreachableError) Unheard() bool {
	return slices.ContainsFunc(unheardWords, func(words string) bool { return strings.Contains(e.Words, words) }) &&
		!strings.Contains(e.Words, "timed out")
}

// Is makes every UnreachableError match [ErrUnreachable].
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }
