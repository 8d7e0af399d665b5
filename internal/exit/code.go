package exit

import (
	"fmt"
	"strconv"
)

// The exit codes of all commands. Those of a signal's end are 128 and the signal's number.
const (
	Done         = 0
	Failed       = 1
	Usage        = 2 // usage or job file
	NoCheckpoint = 10
	Corrupt      = 11  // corrupt checkpoint
	Mismatch     = 12  // checkpoint does not fit this job
	Refused      = 20  // Slurm refused
	Requeue      = 75  // please start me again (EX_TEMPFAIL of sysexits.h); whether that was saved is the verdict's Saved
	Never        = 93  // do not start me again
	Timeout      = 124 // a time limit was over, as timeout(1)
	Interrupted  = 130
)

// Error carries an exit code out of what has said, or will have said by Err, all there is to say.
type Error struct {
	Code int
	Err  error // nil: nothing more to print
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// GivenUp is what the job of a run that is given up exits with: as its worker did, but for a wish to be started again, which is not
// granted.
func GivenUp(code int) int {
	if code == Requeue {
		return Never
	}
	return max(code, Failed)
}

// Meaning says what an exit code tells, for the manual.
type Meaning struct {
	Code string // or several: "126, 127"
	Text string // a phrase without a full stop
}

// Meanings are those of all exit codes, the smallest first.
func Meanings() []Meaning {
	code := strconv.Itoa
	return []Meaning{
		{code(Done), "done"},
		{code(Failed), "failed"},
		{code(Usage), "the command line cannot be understood, the job file has a fault, or the run is not the caller's alone"},
		{"3", "from rehearse: not known; from ckpt verify and ckpt prune: partly done"},
		{code(NoCheckpoint), "there is no checkpoint"},
		{code(Corrupt), "a checkpoint is corrupt"},
		{code(Mismatch), "the checkpoint does not fit this job"},
		{code(Refused), "Slurm refused, cannot be reached, or is not here"},
		{code(Requeue), "the job or worker asks to be run again; what ends of its own with it has saved"},
		{code(Never), "do not run it again: a newer attempt has taken over, or the run was given up"},
		{code(Timeout), "a time limit was over"},
		{"126, 127", "from run and exec: the command cannot be executed, is not there"},
		{"128+N", "a worker was killed by signal N, or the command was told to stop by it; " + code(Interrupted) + ": interrupted"},
	}
}
