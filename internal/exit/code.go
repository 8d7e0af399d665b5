package exit

import (
	"fmt"
	"strconv"
)

// The exit codes of all commands. A process that a signal ended has 128 plus the signal's number.
const (
	Done         = 0
	Failed       = 1
	Usage        = 2 // usage or job file
	NoCheckpoint = 10
	Corrupt      = 11  // corrupt checkpoint
	Mismatch     = 12  // checkpoint does not fit this job
	Refused      = 20  // Slurm refused
	Requeue      = 75  // please start me again (EX_TEMPFAIL of sysexits.h); the verdict's Saved says whether the work was saved
	Never        = 93  // do not start me again
	Timeout      = 124 // a time limit was reached, as in timeout(1)
	Interrupted  = 130
)

// Error is an error with an exit code.
type Error struct {
	Code int
	Err  error // nil: the message was already printed
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// GivenUp returns the exit code of the job of a run that is given up: that of its worker, except that Requeue becomes Never, as the job is
// not started again.
func GivenUp(code int) int {
	if code == Requeue {
		return Never
	}
	return max(code, Failed)
}

// Meaning says what an exit code means, for the manual.
type Meaning struct {
	Code string // one code, or several: "126, 127"
	Text string // a phrase without a full stop
}

// Meanings returns the meanings of all exit codes, the smallest first.
func Meanings() []Meaning {
	code := strconv.Itoa
	return []Meaning{
		{code(Done), "done"},
		{code(Failed), "failed"},
		{code(Usage), "the command line cannot be understood, the job file has a fault, or another user owns or can change the run"},
		{"3", "from rehearse: unknown result; from ckpt verify and ckpt prune: partly done"},
		{code(NoCheckpoint), "no checkpoint was found"},
		{code(Corrupt), "a checkpoint is corrupt"},
		{code(Mismatch), "the checkpoint does not fit this job"},
		{code(Refused), "Slurm refused, cannot be reached, or is not installed here"},
		{code(Requeue), "the job or worker asks to be run again; a worker that exits with it has saved"},
		{code(Never), "do not run it again: a newer attempt has taken over, or the run was given up"},
		{code(Timeout), "a time limit was reached"},
		{"126, 127", "from run and exec: the command cannot be executed, or was not found"},
		{"128+N", "a worker was killed by signal N, or the command was told to stop by it; " + code(Interrupted) + ": interrupted"},
	}
}
