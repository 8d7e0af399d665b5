package torchrun

import (
	"path"
	"slices"
)

// A Setting is one flag of a command line with its value, which nobody has looked at; "1" and "0" of a switch.
type Setting struct{ Name, Value string }

// Split parts a command line of torchrun's into its flags, by their whole names, and the command with its arguments. dashed tells that the
// command stood after --.
func Split(words []string) (flags []Setting, command []string, dashed bool, err error) {
	line, err := parseLine(words)
	if err != nil {
		return nil, nil, false, err
	}
	for _, s := range line.flags {
		flags = append(flags, Setting{Name: s.flag.Name, Value: s.value})
	}
	return flags, line.words, line.dashed, nil
}

// IsLauncher tells whether a word of a command is a program, or a module of Python's, that starts ranks itself.
func IsLauncher(word string) bool { return isLauncher(word) }

// IsInterpreter tells whether a word of a command is Python itself: python3, /usr/bin/python3.12.
func IsInterpreter(word string) bool { return isInterpreter(word) }

// IsSwitch tells whether the flag of a name takes no value.
func IsSwitch(name string) bool {
	f := flagNamed(name)
	return f != nil && f.IsSwitch()
}

// IsWrapper tells whether a word names a program that runs the command behind its own flags, in a container or the like.
func IsWrapper(word string) bool { return slices.Contains(wrappers, path.Base(word)) }
