package doctor

import "fmt"

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // some jobs do not run well, or at all
	Fail Level = "fail" // none does
)

// Finding is what one check has found. Its texts may hold anything that Slurm or a file said.
type Finding struct {
	Check string `json:"check"` // "slurm", "shm", ...
	Level Level  `json:"level"`
	Nodes string `json:"nodes,omitempty"` // on which, folded; empty: on all, or on none in particular
	Found string `json:"found"`           // what there is, and why that matters where it is not as it should be
	Do    string `json:"do,omitempty"`
}

// Worst is the level of the worst finding.
func Worst(findings []Finding) Level {
	worst := OK
	for _, f := range findings {
		switch {
		case f.Level == Fail:
			return Fail
		case f.Level == Warn:
			worst = Warn
		}
	}
	return worst
}

// Text is the finding as one line, less its check and its level.
func (f Finding) Text() string {
	if f.Do == "" {
		return f.Found
	}
	return f.Found + "; " + f.Do
}

// findings gathers them.
type findings []Finding

func (f *findings) add(level Level, check, do, format string, args ...any) {
	*f = append(*f, Finding{Check: check, Level: level, Found: fmt.Sprintf(format, args...), Do: do})
}

func (f *findings) ok(check, format string, args ...any) { f.add(OK, check, "", format, args...) }

func (f *findings) warn(check, do, format string, args ...any) {
	f.add(Warn, check, do, format, args...)
}

func (f *findings) fail(check, do, format string, args ...any) {
	f.add(Fail, check, do, format, args...)
}
