package jobfile

import (
	"fmt"
	"strings"
)

// Fault is one thing that is wrong, or worth a warning, and where.
type Fault struct {
	File    string `json:"file"`             // the file's name as it was given, or "--set a.b"
	Line    int    `json:"line,omitempty"`   // from 1; 0 in a fault of a --set
	Column  int    `json:"column,omitempty"` // from 1, in characters; 0 in a fault of a --set
	Key     string `json:"key,omitempty"`    // dotted: "slurm.nodes"; empty where no key is to blame
	Message string `json:"message"`          // names the key, and says what to write instead
}

// String gives "job.toml:5:1: message", which editors and terminals turn into a link.
func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
}

// Faults is everything that is wrong with a job, in the order of the file, and then in the order
// of the overrides. It is never empty where it is returned as an error.
type Faults []Fault

// Error gives one line a fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}
