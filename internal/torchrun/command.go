package torchrun

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
)

// runPathProgram does what torchrun's --run-path does, as a program of its own.
const runPathProgram = `import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name="__main__")`

// Argv is the workers' command; nil where none is given, and the run directory has it. python is what PYTHON_EXEC holds.
func (o *Options) Argv(python string) ([]string, error) {
	if len(o.Command) == 0 {
		for _, name := range []string{"module", "no-python", "run-path", "pass-local-rank"} {
			if o.Has(name) {
				return nil, &usage.Error{Message: o.How(name) + " is about a script, and none is given", Hint: "write it after the flags"}
			}
		}
		return nil, nil
	}
	python = cmp.Or(python, "python3")
	script, arguments := o.Command[0], o.Command[1:]
	var command []string
	switch {
	case o.RunPath:
		command = []string{python, "-u", "-c", runPathProgram, script}
	case o.Module:
		command = []string{python, "-u", "-m", script}
	case o.NoPython || o.Dashed:
		command = []string{script}
	default:
		command = []string{python, "-u", script}
	}
	if o.PassLocalRank {
		command = append(command, "--local-rank="+launch.LocalRankMacro)
	}
	return slices.Concat(command, arguments), nil
}

// meantPython reports whether a script stands after --, where torchrun would run it with Python and we do as we are told.
func (o *Options) meantPython() bool {
	return o.Dashed && !o.Module && !o.RunPath && !o.NoPython && len(o.Command) > 0 &&
		strings.HasSuffix(o.Command[0], ".py") && !strings.Contains(o.Command[0], "/")
}

// RunsPython reports whether the workers' command, which Argv or the job gives, is a Python program.
func (o *Options) RunsPython(command []string) bool {
	if len(o.Command) > 0 && (o.Module || o.RunPath || !o.NoPython && !o.Dashed) { // with whatever PYTHON_EXEC names
		command = append([]string{"python3"}, command[1:]...)
	}
	return runsPython(command)
}

// wrappers are programs that run the command that follows their own flags, on this machine or in a container.
var wrappers = []string{
	"env", "exec", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout", "chrt", "taskset", "numactl", "unshare", "setpriv",
	"conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pipenv", "pixi", "module", "spack",
	"apptainer", "singularity", "docker", "podman", "podman-hpc", "nerdctl", "shifter", "sarus", "ch-run", "enroot", "udocker",
	"nsys", "ncu", "nvprof", "rocprof", "rocprofv3", "strace", "perf", "gdb", "catchsegv", "valgrind",
}

var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "ash"}

// runsPython reports whether a command is a Python program, be it behind shells, environments and containers. Which of a wrapper's words
// are its own flags is not known here: an interpreter decides wherever it stands, and a script only where nothing before it can be the
// program: x.py of "timeout 60 ./train --script x.py" is what ./train reads. A program that starts ranks itself, as torchrun does, needs
// the port for its own store.
func runsPython(command []string) bool {
	if len(command) == 0 {
		return false
	}
	first := path.Base(command[0])
	isShell := slices.Contains(shells, first)
	switch {
	case isScript(command[0]):
		return true
	case isShell && !slices.ContainsFunc(command, isShellScriptFlag):
		return false // a script's file
	case !isShell && !slices.Contains(wrappers, first) && !isInterpreter(command[0]):
		return false
	}
	var words []string
	for _, word := range command {
		words = append(words, shellWords(word)...)
	}
	interpreter, begins := false, true // begins: the next word may be the program
	for i, word := range words {
		switch {
		case isLauncher(word):
			return false
		case isScript(word) && (interpreter || begins), interpreter && word == "-c":
			return true
		case interpreter && word == "-m":
			return i+1 == len(words) || !isLauncher(words[i+1])
		}
		interpreter = interpreter || isInterpreter(word)
		begins = slices.Contains(beforeCommands, word) || begins && mayPrecede(word)
	}
	return interpreter
}

// beforeCommands are the shell's words after which a command begins.
var beforeCommands = []string{";", "{", "!", "if", "then", "else", "elif", "do", "while", "until"}

// mayPrecede reports whether a word may stand before the program in a command: a wrapper or a shell, a flag or a number for it,
// NAME=VALUE, or a variable.
func mayPrecede(word string) bool {
	name := path.Base(word)
	return slices.Contains(wrappers, name) || slices.Contains(shells, name) || strings.ContainsRune("-$0123456789", rune(word[0])) ||
		strings.Contains(word, "=")
}

// isInterpreter reports whether a word is Python itself: python3, /usr/bin/python3.12.
func isInterpreter(word string) bool {
	if strings.Contains(word, "=") { // NAME=VALUE
		return false
	}
	name := path.Base(word)
	version, found := strings.CutPrefix(name, "python")
	if !found {
		version, found = strings.CutPrefix(name, "pypy")
	}
	return found && strings.Trim(version, "0123456789.t") == ""
}

// isScript reports whether a word is a file of Python's.
func isScript(word string) bool {
	return strings.HasSuffix(word, ".py") && !strings.HasPrefix(word, "-") && !strings.Contains(word, "=")
}

// isLauncher reports whether a word is a program, or a module, that starts ranks itself.
func isLauncher(word string) bool {
	switch path.Base(word) {
	case "torchrun", "torchx", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec",
		"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner":
		return true
	}
	return false
}

// starters start tasks of any program, on several machines.
var starters = []string{"srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "ibrun", "aprun"}

// IsStarter reports whether a word of a command is a program that starts tasks of any other, as srun and mpirun do.
func IsStarter(word string) bool { return slices.Contains(starters, path.Base(word)) }

// FindLauncher is the word of a command that starts ranks itself, be it behind wrappers, Python's -m or in the script of a shell: torchrun,
// deepspeed, srun, mpirun and the like. Empty: there is none. What a program that is none of these gets as arguments is not looked at.
func FindLauncher(command []string) string {
	words := command
	if len(command) > 0 && slices.Contains(shells, path.Base(command[0])) && slices.ContainsFunc(command, isShellScriptFlag) {
		words = nil
		for _, word := range command {
			words = append(words, shellWords(word)...)
		}
	}
	begins, wrapped := true, false // a program may stand here; one that runs another stood before
	for i, word := range words {
		switch {
		case slices.Contains(beforeCommands, word):
			begins, wrapped = true, false
		case !begins && !wrapped:
		case startsRanks(words[i:]):
			return path.Base(word)
		case isInterpreter(word):
			if module := moduleOf(words[i+1:]); isLauncher(module) {
				return module
			}
			begins, wrapped = false, false
		case isScript(word):
			begins, wrapped = false, false
		case slices.Contains(wrappers, path.Base(word)):
			wrapped = true
		default:
			begins = begins && word != "" && mayPrecede(word)
		}
	}
	return ""
}

// startsRanks reports whether the first of some words is a program that starts ranks with the others.
func startsRanks(words []string) bool {
	name := path.Base(words[0])
	if command, hasOthers := map[string]string{"accelerate": "launch", "torchx": "run"}[name]; hasOthers {
		return len(words) > 1 && words[1] == command
	}
	return IsStarter(name) || isLauncher(name) && !strings.Contains(name, ".") // which has a module's name
}

// moduleOf is the module that Python is asked for by the words behind it; empty: it is not asked for one.
func moduleOf(words []string) string {
	for i, word := range words {
		switch {
		case word == "-m" && i+1 < len(words):
			return words[i+1]
		case !strings.HasPrefix(word, "-"):
			return ""
		}
	}
	return ""
}

// isShellScriptFlag reports whether a word is -c, or several flags of which c is the last: -lc.
func isShellScriptFlag(word string) bool {
	return strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.HasSuffix(word, "c")
}

// shellWords splits a shell's script into rough words, enough to find a program's name. The word ";" stands for anything that ends a
// command.
func shellWords(script string) []string {
	script = strings.NewReplacer("\n", " ; ", ";", " ; ", "&", " ; ", "|", " ; ", "(", " ; ", ")", " ; ", "`", " ; ").Replace(script)
	return strings.FieldsFunc(script, func(r rune) bool { return strings.ContainsRune(" \t\r<>'\"", r) })
}
