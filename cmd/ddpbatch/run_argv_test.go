package main

import (
	"slices"
	"strings"
	"testing"
)

// TestRunCommands: what a worker executes.
func TestRunCommands(t *testing.T) {
	for line, want := range map[string]string{
		"train.py --lr 1":              "python3 -u train.py --lr 1",
		"-- train.py --lr 1":           "train.py --lr 1",
		"--no-python train.py -m":      "train.py -m",
		"--no-python -- sh -c x":       "sh -c x",
		"-m pkg.mod a":                 "python3 -u -m pkg.mod a",
		"-m -- pkg.mod a":              "python3 -u -m pkg.mod a", // as torchrun, to which -- ends the flags and no more
		"--pass-local-rank train.py a": "python3 -u train.py --local-rank=${local_rank} a",
		"--use-env train.py a":         "python3 -u train.py a",
		"-m --pass-local-rank mod a":   "python3 -u -m mod --local-rank=${local_rank} a",
	} {
		checkCommand(t, nil, line, strings.Fields(want))
	}
	checkCommand(t, nil, "--run-path --no-python /a/train.py b", []string{"python3", "-u", "-c", runPathProgram, "/a/train.py", "b"})
	checkCommand(t, nil, "--run-path train.py", []string{"python3", "-u", "-c", runPathProgram, "train.py"})
	checkCommand(t, []string{"PYTHON_EXEC=/opt/python"}, "train.py", []string{"/opt/python", "-u", "train.py"})
	checkCommand(t, []string{"PYTHON_EXEC=/opt/python"}, "-- train.py", []string{"train.py"})
	checkCommand(t, []string{"PET_NO_PYTHON=1"}, "train.py", []string{"train.py"})
	checkCommand(t, []string{"PET_MODULE=1"}, "pkg", []string{"python3", "-u", "-m", "pkg"})
}

func checkCommand(t *testing.T, environ []string, line string, want []string) {
	t.Helper()
	e := &env{Environ: environ}
	o, _, err := parseRun(strings.Fields(line), e.lookup)
	if err != nil {
		t.Errorf("%q: %v", line, err)
		return
	}
	if got, err := o.argv(e); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q: %q, %v; want %q", line, got, err, want)
	}
}
