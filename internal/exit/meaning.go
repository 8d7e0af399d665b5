package exit

import "strconv"

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
		{"126, 127", "from run: the command cannot be executed, is not there"},
		{"128+N", "a worker was killed by signal N, or the command was told to stop by it; " + code(Interrupted) + ": interrupted"},
	}
}
