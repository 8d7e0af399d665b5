package main

import (
	"strings"
	"testing"
)

// TestNotesOnVariables: a variable whose name is nearly one of torchrun's changes nothing, which is said with the name that is meant; others
// that begin with PET may be anybody's.
func TestNotesOnVariables(t *testing.T) {
	for name, want := range map[string]string{
		"PET_NPROC":     "PET_NPROC is no variable of run's: did you mean PET_NPROC_PER_NODE?",
		"PET_NPROCS":    "PET_NPROCS is no variable of run's: did you mean PET_NPROC_PER_NODE?",
		"PET_MAX_RESTS": "PET_MAX_RESTS is no variable of run's: did you mean PET_MAX_RESTARTS?",
		"PET_SHOP":      "",
		"PET_HANGS":     "", // --hang has no variable
	} {
		_, said, err := placed(t, with(shell(t), map[string]string{name: "2"}), "x")
		if err != nil || want != "" && !strings.Contains(said, want) || want == "" && said != "" {
			t.Errorf("%s: %v, said %q, want %q", name, err, said, want)
		}
	}
}
