package exit

import "fmt"

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
