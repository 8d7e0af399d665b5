package torchrun

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/usage"
)

// line is a parsed command line of run.
type line struct {
	flags  []setting
	words  []string // from the first that is not a flag: the command, or the script and its arguments
	dashed bool     // they follow --
	help   bool
}

// setting is one flag with its value.
type setting struct {
	flag  *Flag
	how   string // as it was written: --nproc_per_node, -t, PET_TEE
	value string // "1" and "0" for switches
}

// parseLine parses a line as torchrun's parser does (argparse, with its rules for short flags, abbreviated names, and words that look like
// flags), but rejects what that one ignores.
func parseLine(words []string) (line line, err error) {
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "--":
			line.words, line.dashed = words[i+1:], true
			return line, nil
		case word == "-h" || word == "--help":
			line.help = true
			return line, nil
		case len(word) < 2 || word[0] != '-':
			line.words = words[i:]
			return line, nil
		}
		settings, needs, err := parseWord(word)
		if err != nil {
			return line, err
		}
		if last := len(settings) - 1; needs {
			if i++; i == len(words) || looksLikeFlag(words[i]) {
				return line, needsValue(settings[last])
			}
			settings[last].value = words[i]
			if words[i] == "" && !settings[last].flag.blank {
				return line, needsValue(settings[last])
			}
		}
		line.flags = append(line.flags, settings...)
	}
	return line, nil
}

// parseWord parses one word that begins with a dash: a long flag, or one or more short ones. needs reports whether the value of the last
// one is the next word.
func parseWord(word string) (settings []setting, needs bool, err error) {
	name, value, hasValue := strings.Cut(word, "=")
	if !strings.HasPrefix(word, "--") {
		if f := flagNamed(name[1:]); f != nil {
			return nil, false, &usage.Error{Message: fmt.Sprintf("%s has one dash", name), Hint: "write --" + name[1:]}
		}
		return parseShortFlags(word)
	}
	f, err := longFlag(name)
	if err != nil {
		return nil, false, err
	}
	s := setting{flag: f, how: name, value: value}
	switch {
	case f.off && hasValue && (value == "true" || value == "false"):
		s.value = map[string]string{"true": "1", "false": "0"}[value]
	case f.off && hasValue:
		return nil, false, &usage.Error{Message: fmt.Sprintf("%s must be true or false, not %q", name, value), Hint: "write " + name +
			"=false to turn it off"}
	case f.IsSwitch() && hasValue:
		return nil, false, &usage.Error{Message: fmt.Sprintf("%s does not take a value, but has %q", name, value),
			Hint: "write it without a value, or leave it out"}
	case f.IsSwitch():
		s.value = "1"
	case hasValue && value == "" && !f.blank:
		return nil, false, needsValue(s)
	}
	return []setting{s}, !f.IsSwitch() && !hasValue, nil
}

func needsValue(s setting) error {
	return &usage.Error{Message: fmt.Sprintf("%s needs a value: %s", s.how, s.flag.Word),
		Hint: "for a value that begins with a dash, write " + s.how + "=VALUE"}
}

// longFlag finds the flag that a word with two dashes names, possibly abbreviated.
func longFlag(word string) (*Flag, error) {
	name := word[2:]
	if f := flagNamed(name); f != nil {
		return f, nil
	}
	switch near := flagsFrom(name); {
	case len(near) == 1:
		return near[0], nil
	case len(near) > 1:
		return nil, &usage.Error{Message: fmt.Sprintf("%s may mean %s", word, listFlags(near)), Hint: "write it whole"}
	}
	hint := `try "ddpbatch run -h"`
	if near := nearFlag(name); near != "" {
		hint = "did you mean --" + near + "?"
	}
	return nil, &usage.Error{Message: fmt.Sprintf("run has no flag %s", word), Hint: hint}
}

func listFlags(flags []*Flag) string {
	names := make([]string, len(flags))
	for i, f := range flags {
		names[i] = "--" + f.Name
	}
	return strings.Join(names, " or ")
}

// parseShortFlags parses -m, -r3, -r=3, -mt3: switches, and possibly a flag whose value is the rest of the word.
func parseShortFlags(word string) (settings []setting, needs bool, err error) {
	for i := 1; i < len(word); i++ {
		f := flagShort(word[i])
		how := "-" + word[i:i+1]
		switch {
		case f == nil:
			return nil, false, noShortFlag(word, how)
		case f.IsSwitch():
			settings = append(settings, setting{flag: f, how: how, value: "1"})
			continue
		}
		s := setting{flag: f, how: how, value: strings.TrimPrefix(word[i+1:], "=")}
		if s.value == "" && word[i+1:] != "" {
			return nil, false, needsValue(s)
		}
		return append(settings, s), s.value == "", nil
	}
	return settings, false, nil
}

func noShortFlag(word, how string) error {
	hint := "run's short flags are -m, -r and -t; others have two dashes"
	name, _, _ := strings.Cut(word[1:], "=")
	if near := nearFlag(name); near != "" && len(name) > 2 {
		hint = "did you mean --" + near + "?"
	}
	if how == word {
		return &usage.Error{Message: "run has no flag " + strconv.Quote(how), Hint: hint}
	}
	return &usage.Error{Message: fmt.Sprintf("run has no flag %q (in %q)", how, word), Hint: hint}
}

// looksLikeFlag reports whether a word cannot be the value of the flag before it. As in argparse, negative numbers and words with spaces
// can be values.
func looksLikeFlag(word string) bool {
	if len(word) < 2 || word[0] != '-' || strings.Contains(word, " ") {
		return false
	}
	_, err := strconv.ParseFloat(word, 64)
	return err != nil
}

// A Setting is one flag of a command line with its value, which has not been checked. The value of a switch is "1" or "0".
type Setting struct{ Name, Value string }

// Split splits a command line of torchrun into its flags, with their full names, and the command with its arguments. dashed reports whether
// the command follows --.
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

// IsLauncher reports whether a word of a command is a program or Python module that starts ranks itself.
func IsLauncher(word string) bool { return isLauncher(word) }

// IsInterpreter reports whether a word of a command is Python itself: python3, /usr/bin/python3.12.
func IsInterpreter(word string) bool { return isInterpreter(word) }

// IsSwitch reports whether the flag of a name takes no value.
func IsSwitch(name string) bool {
	f := flagNamed(name)
	return f != nil && f.IsSwitch()
}

// IsWrapper reports whether a word names a program that runs the command after its own flags, for example in a container.
func IsWrapper(word string) bool { return slices.Contains(wrappers, path.Base(word)) }
