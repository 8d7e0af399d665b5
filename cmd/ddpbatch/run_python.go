package main

import (
	"path"
	"slices"
	"strings"

	"ddpbatch/mpi/launch"
)

// servesTorch tells whether this agent, if it is agent 0, serves PyTorch's store at MASTER_PORT: where a flag or the job says so, and
// otherwise for Python. A port that was given without either may be meant for a server of the workers' own.
func (o *runOptions) servesTorch(w *workers, cfg *launch.AgentConfig) bool {
	switch {
	case o.has("torch-store"):
		return o.torchStore
	case w.launch.TorchStore != nil:
		return *w.launch.TorchStore
	case w.builtin || o.has("master-port") && cfg.MasterPort != 0:
		return false
	case len(o.command) > 0 && (o.module || o.runPath || !o.noPython && !o.dashed): // with whatever PYTHON_EXEC names
		return runsPython(append([]string{"python3"}, w.command[1:]...))
	}
	return runsPython(w.command)
}

// wrappers are programs that run the command that follows their own flags, on this machine or in a container.
var wrappers = []string{
	"env", "exec", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout", "chrt", "taskset", "numactl", "unshare", "setpriv",
	"conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pipenv", "pixi", "module", "spack",
	"apptainer", "singularity", "docker", "podman", "podman-hpc", "nerdctl", "shifter", "sarus", "ch-run", "enroot", "udocker",
	"nsys", "ncu", "nvprof", "rocprof", "rocprofv3", "strace", "perf", "gdb", "catchsegv", "valgrind",
}

var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "ash"}

// runsPython tells whether a command is a Python program, be it behind shells, environments and containers. Which of a wrapper's words
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

// isInterpreter tells whether a word is Python itself: python3, /usr/bin/python3.12.
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

// isScript tells whether a word is a file of Python's.
func isScript(word string) bool {
	return strings.HasSuffix(word, ".py") && !strings.HasPrefix(word, "-") && !strings.Contains(word, "=")
}

// isLauncher tells whether a word is a program, or a module, that starts ranks itself.
func isLauncher(word string) bool {
	switch path.Base(word) {
	case "torchrun", "torchx", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec",
		"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner":
		return true
	}
	return false
}

// isShellScriptFlag tells whether a word is -c, or several flags of which c is the last: -lc.
func isShellScriptFlag(word string) bool {
	return strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.HasSuffix(word, "c")
}

// shellWords splits a shell's script into rough words, enough to find a program's name. The word ";" stands for anything that ends a
// command.
func shellWords(script string) []string {
	script = strings.NewReplacer("\n", " ; ", ";", " ; ", "&", " ; ", "|", " ; ", "(", " ; ", ")", " ; ", "`", " ; ").Replace(script)
	return strings.FieldsFunc(script, func(r rune) bool { return strings.ContainsRune(" \t\r<>'\"", r) })
}
