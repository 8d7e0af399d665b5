package doctor

import "fmt"

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // some jobs do not run well, or do not run
	Fail Level = "fail" // no job runs
)

// Finding is the result of one check. Its texts may contain anything that Slurm or a file says.
type Finding struct {
	Check string `json:"check"` // "slurm", "shm", ...
	Level Level  `json:"level"`
	Nodes string `json:"nodes,omitempty"` // the nodes concerned, as a host list; empty: all, or none in particular
	Found string `json:"found"`           // what was found and, if something is wrong, why it matters
	Do    string `json:"do,omitempty"`    // what to do
}

// Worst returns the level of the worst finding.
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

// Text returns the finding as one line, without its check and level.
func (f Finding) Text() string {
	if f.Do == "" {
		return f.Found
	}
	return f.Found + "; " + f.Do
}

// findings is a list of findings.
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
