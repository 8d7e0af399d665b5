package torchrun

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
)

// runPathProgram does what torchrun's --run-path does, as a Python program.
const runPathProgram = `import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name="__main__")`

// Argv returns the workers' command, or nil if the flags give none and the command is in the run directory. python is the value of
// PYTHON_EXEC.
func (o *Options) Argv(python string) ([]string, error) {
	if len(o.Command) == 0 {
		for _, name := range []string{"module", "no-python", "run-path", "pass-local-rank"} {
			if o.Has(name) {
				return nil, &usage.Error{Message: o.How(name) + " needs a script", Hint: "write the script after the flags"}
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

// PythonScript returns the file that Python is to run, or "" if the command is something else.
func (o *Options) PythonScript() string {
	if len(o.Command) == 0 || o.Module || !o.RunPath && (o.NoPython || o.Dashed) {
		return ""
	}
	return o.Command[0]
}

// meantPython reports whether a script follows --. torchrun would run it with Python, but here it is run as it is.
func (o *Options) meantPython() bool {
	return o.Dashed && !o.Module && !o.RunPath && !o.NoPython && len(o.Command) > 0 &&
		strings.HasSuffix(o.Command[0], ".py") && !strings.Contains(o.Command[0], "/")
}

// RunsPython reports whether the workers' command, which Argv or the job gives, is a Python program.
func (o *Options) RunsPython(command []string) bool {
	if len(o.Command) > 0 && (o.Module || o.RunPath || !o.NoPython && !o.Dashed) { // with the interpreter that PYTHON_EXEC names
		command = append([]string{"python3"}, command[1:]...)
	}
	return runsPython(command)
}

// wrappers are programs that run the command after their own flags, on this machine or in a container.
var wrappers = []string{
	"env", "exec", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout", "chrt", "taskset", "numactl", "unshare", "setpriv",
	"conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pipenv", "pixi", "module", "spack",
	"apptainer", "singularity", "docker", "podman", "podman-hpc", "nerdctl", "shifter", "sarus", "ch-run", "enroot", "udocker",
	"nsys", "ncu", "nvprof", "rocprof", "rocprofv3", "strace", "perf", "gdb", "catchsegv", "valgrind",
}

var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "ash"}

// runsPython reports whether a command is a Python program, possibly behind shells, environments and containers. It does not know which
// words are flags of a wrapper. So an interpreter decides at any position, and a script only if nothing before it can be the program: in
// "timeout 60 ./train --script x.py", x.py is an argument of ./train. A program that starts ranks itself, as torchrun does, needs the port
// for its own store, and does not count.
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
		return false // the file of a script
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

// mayPrecede reports whether a word may stand before the program in a command: a wrapper or shell, a flag or a number for it, NAME=VALUE,
// or a variable.
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

// isScript reports whether a word names a Python file.
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

// FindLauncher returns the word of a command that starts ranks itself, such as torchrun, deepspeed, srun or mpirun. It may stand behind
// wrappers, after Python's -m, or in the script of a shell. FindLauncher returns "" if there is none. It does not look at the arguments of
// other programs.
func FindLauncher(command []string) string {
	words := command
	if len(command) > 0 && slices.Contains(shells, path.Base(command[0])) && slices.ContainsFunc(command, isShellScriptFlag) {
		words = nil
		for _, word := range command {
			words = append(words, shellWords(word)...)
		}
	}
	begins, wrapped := true, false // begins: a program may stand here; wrapped: a wrapper stood before it
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

// startsRanks reports whether the first of some words is a program that starts ranks with the other words.
func startsRanks(words []string) bool {
	name := path.Base(words[0])
	if command, hasOthers := map[string]string{"accelerate": "launch", "torchx": "run"}[name]; hasOthers {
		return len(words) > 1 && words[1] == command
	}
	return IsStarter(name) || isLauncher(name) && !strings.Contains(name, ".") // a name with a dot is that of a module
}

// moduleOf returns the module that Python runs for the words after it, or "" if they name none.
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

// isShellScriptFlag reports whether a word is -c, or several flags that end with c, such as -lc.
func isShellScriptFlag(word string) bool {
	return strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.HasSuffix(word, "c")
}

// shellWords splits a shell's script roughly into words, which suffices to find a program's name. The word ";" stands for anything that
// ends a command.
func shellWords(script string) []string {
	script = strings.NewReplacer("\n", " ; ", ";", " ; ", "&", " ; ", "|", " ; ", "(", " ; ", ")", " ; ", "`", " ; ").Replace(script)
	return strings.FieldsFunc(script, func(r rune) bool { return strings.ContainsRune(" \t\r<>'\"", r) })
}
