package main

import (
	"slices"
	"strings"

	"ddpbatch/mpi/launch"
)

// runPathProgram does what torchrun's --run-path does, as a program of its own.
const runPathProgram = `import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name="__main__")`

// argv is the workers' command; nil where none is given, and the run directory has it.
func (o *runOptions) argv(e *env) ([]string, error) {
	if len(o.command) == 0 {
		for _, name := range []string{"module", "no-python", "run-path", "pass-local-rank"} {
			if o.has(name) {
				return nil, &usageError{message: o.how(name) + " is about a script, and none is given", hint: "write it after the flags"}
			}
		}
		return nil, nil
	}
	script, arguments := o.command[0], o.command[1:]
	var command []string
	switch {
	case o.runPath:
		command = []string{pythonOf(e), "-u", "-c", runPathProgram, script}
	case o.module:
		command = []string{pythonOf(e), "-u", "-m", script}
	case o.noPython || o.dashed:
		command = []string{script}
	default:
		command = []string{pythonOf(e), "-u", script}
	}
	if o.passLocalRank {
		command = append(command, "--local-rank="+launch.LocalRankMacro)
	}
	return slices.Concat(command, arguments), nil
}

// pythonOf is what torchrun runs scripts with.
func pythonOf(e *env) string {
	if python := e.get("PYTHON_EXEC"); python != "" {
		return python
	}
	return "python3"
}

// meantPython tells whether a script stands after --, where torchrun would run it with Python and we do as we are told.
func (o *runOptions) meantPython() bool {
	return o.dashed && !o.module && !o.runPath && !o.noPython && len(o.command) > 0 &&
		strings.HasSuffix(o.command[0], ".py") && !strings.Contains(o.command[0], "/")
}
