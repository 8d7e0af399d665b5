package slurm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Given is one option as a command line or a script gives it to sbatch or srun.
type Given struct {
	Name     string // the long name in full ("cpus-per-task"); for an unknown option, as it is written
	Value    string
	HasValue bool
	Known    bool
	Line     int // line of the script, from 1; 0: the option is on a command line
	Part     int // component of a heterogeneous job, from 0

	next bool // the value was a word of its own
}

// Word returns the option as one word that sbatch takes.
func (g Given) Word() string {
	return Option{Name: g.Name, Value: g.Value, Flag: !g.HasValue}.word()
}

// Directives reads the #SBATCH lines of a script as sbatch does, whose grammar is not the shell's (see quoteDirective). They end at the
// first line that is neither blank nor a comment, and all of them together are one command line. If sbatch would refuse them, Directives
// returns an error.
func Directives(script string) ([]Given, error) {
	var words []string
	var lines, parts []int
	number, part := 0, 0
	for line := range strings.Lines(script) {
		number++
		rest, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "#SBATCH")
		if !found {
			if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
				break
			}
			continue
		}
		if separates(rest) { // sbatch ignores the rest of that line
			part++
			continue
		}
		some, err := directiveWords(rest)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		for _, word := range some {
			words, lines, parts = append(words, word), append(lines, number), append(parts, part)
		}
	}
	var all []Given
	for from := 0; from < len(words); { // each component is a command line of its own
		to := from
		for to < len(words) && parts[to] == parts[from] {
			to++
		}
		given, starts, at, err := sbatchNames().read(words[from:to])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", lines[from+at], err)
		}
		if at < to-from {
			return nil, fmt.Errorf("line %d: sbatch refuses %s, which is not an option", lines[from+at], clip(words[from+at]))
		}
		for i, g := range given {
			g.Line, g.Part = lines[from+starts[i]], parts[from]
			all = append(all, g)
		}
		from = to
	}
	return all, nil
}

// SrunOptions reads the options at the beginning of srun's arguments. rest is the program that srun starts, and the program's arguments.
func SrunOptions(words []string) (given []Given, rest []string, err error) {
	given, _, at, err := srunNames().read(words)
	if err != nil {
		return nil, nil, err
	}
	return given, words[at:], nil
}

// blanks are the characters for which C's isspace is true.
const blanks = " \t\n\v\f\r"

// separates reports whether what follows #SBATCH begins the next component of a heterogeneous job.
func separates(rest string) bool {
	words := strings.Fields(rest)
	return len(words) > 0 && (strings.EqualFold(words[0], "hetjob") || strings.EqualFold(words[0], "packjob"))
}

// directiveWords splits what follows #SBATCH into words; quoteDirective documents the rules.
func directiveWords(line string) (words []string, err error) {
	for {
		line = strings.TrimLeft(line, blanks)
		switch {
		case strings.HasPrefix(line, ":"):
			return nil, fmt.Errorf("sbatch refuses a word that begins with a colon: %s", clip(line))
		case line == "" || line[0] == '#' || separates(line):
			return words, nil
		}
		word, rest, some, err := directiveWord(line)
		if err != nil {
			return nil, err
		}
		if !some { // sbatch takes such a word as the end of the line
			return words, nil
		}
		words, line = append(words, word), rest
	}
}

// directiveWord reads one word; some is false if the word is empty.
func directiveWord(line string) (word, rest string, some bool, err error) {
	var b strings.Builder
	quote, escaped := byte(0), false
	i := 0
	for ; i < len(line) && (quote != 0 || strings.IndexByte(blanks, line[i]) < 0); i++ {
		c := line[i]
		switch {
		case escaped:
			escaped = false
			b.WriteByte(c)
		case c == '\\':
			escaped = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '#':
			return b.String(), "", b.Len() > 0, nil
		default:
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", "", false, fmt.Errorf("sbatch refuses the quote %c without its end in %s", quote, clip(line))
	}
	return b.String(), line[i:], b.Len() > 0, nil
}

// argument says whether and how an option takes a value.
type argument int

const (
	noArgument       argument = iota
	needsArgument             // in the same word, or the next one
	optionalArgument          // in the same word
)

// optionNames are the options of a program, as getopt_long(3) reads them.
type optionNames struct {
	long  map[string]argument
	short map[byte]string // the long name
}

// read parses the options at the beginning of words. starts has the index of the word at which each option begins. at is the number of
// words that the options take, or the index of the word that err is about.
func (n optionNames) read(words []string) (given []Given, starts []int, at int, err error) {
	for at < len(words) {
		word := words[at]
		if word == "--" {
			return given, starts, at + 1, nil
		}
		if len(word) < 2 || word[0] != '-' {
			break
		}
		some, err := n.readWord(word, words[at+1:])
		if err != nil {
			return nil, nil, at, err
		}
		for _, g := range some {
			given, starts = append(given, g), append(starts, at)
		}
		at++
		if last := some[len(some)-1]; last.HasValue && last.next {
			at++
		}
	}
	return given, starts, at, nil
}

// readWord reads the options of one word. The last of them may take its value from the next word.
func (n optionNames) readWord(word string, next []string) (given []Given, err error) {
	if strings.HasPrefix(word, "--") {
		given, err = n.readLong(word, next)
	} else {
		given, err = n.readShort(word)
	}
	if err != nil {
		return nil, err
	}
	last := &given[len(given)-1]
	if last.Known && n.long[last.Name] == needsArgument && !last.HasValue {
		if len(next) == 0 {
			return nil, fmt.Errorf("%s needs a value", clip(word))
		}
		last.Value, last.HasValue, last.next = next[0], true, true
	}
	return given, nil
}

// readLong reads "--name", "--name=value" or an unambiguous abbreviation of a name. An unknown option, which a site may have added, takes
// the next word as its value, unless that is an option.
func (n optionNames) readLong(word string, next []string) ([]Given, error) {
	name, value, hasValue := strings.Cut(word[2:], "=")
	kind, known := n.long[name]
	if !known {
		var near []string
		for _, whole := range slices.Sorted(maps.Keys(n.long)) {
			if strings.HasPrefix(whole, name) {
				near = append(near, whole)
			}
		}
		switch {
		case len(near) == 1:
			name, kind, known = near[0], n.long[near[0]], true
		case len(near) > 1:
			return nil, fmt.Errorf("%s may mean --%s", clip(word), strings.Join(near, " or --"))
		}
	}
	g := Given{Name: name, Value: value, HasValue: hasValue, Known: known}
	switch {
	case known && kind == noArgument && hasValue:
		return nil, fmt.Errorf("%s does not take a value", clip(word))
	case known:
		g.Name = wholeName(name)
	case !hasValue && len(next) > 0 && !strings.HasPrefix(next[0], "-"):
		g.Value, g.HasValue, g.next = next[0], true, true
	}
	return []Given{g}, nil
}

// readShort reads "-n4", "-n", or several letters, the last of which may have a value.
func (n optionNames) readShort(word string) (given []Given, err error) {
	for i := 1; i < len(word); i++ {
		name, known := n.short[word[i]]
		if !known {
			return nil, fmt.Errorf("%s: unknown option -%s", clip(word), clip(word[i:i+1]))
		}
		g := Given{Name: name, Known: true}
		if n.long[name] != noArgument {
			g.Value = word[i+1:]
			g.HasValue = g.Value != ""
			return append(given, g), nil
		}
		given = append(given, g)
	}
	return given, nil
}

// wholeName returns the name that sbatch(1) uses for an option that has two names.
func wholeName(name string) string {
	switch name {
	case "tasks-per-node":
		return "ntasks-per-node"
	case "share":
		return "oversubscribe"
	case "workdir":
		return "chdir"
	}
	return name
}

// sbatchShort are sbatch's options of one letter.
const sbatchShort = `A account a array B extra-node-info b begin C constraint c cpus-per-task D chdir d dependency e error F nodefile
	G gpus H hold h help i input J job-name k no-kill L licenses M clusters m distribution N nodes n ntasks O overcommit o output
	P dependency p partition Q quiet q qos S core-spec s oversubscribe t time V version v verbose W wait w nodelist x exclude`

// valueless are the options among reservedOptions that take no value.
const valueless = "wait quiet test-only parsable external help usage version"

func sbatchNames() optionNames {
	names := optionNames{long: map[string]argument{}, short: map[byte]string{}}
	for name, kind := range optionTable {
		names.long[name] = map[optionKind]argument{flagValue: noArgument, optionalValue: optionalArgument}[kind]
		if kind != flagValue && kind != optionalValue {
			names.long[name] = needsArgument
		}
	}
	for name := range reservedOptions {
		names.long[name] = needsArgument
	}
	names.add(valueless+" share", noArgument)
	names.add("tasks-per-node workdir ntasks-per-tres", needsArgument)
	names.letters(sbatchShort)
	return names
}

// srunNames returns srun's options: those that it shares with sbatch, its own, and those of Pyxis, a plugin that starts containers.
func srunNames() optionNames {
	names := sbatchNames()
	names.add("label unbuffered exact overlap pty multi-prog preserve-env disable-status no-allocate interactive verbose quiet "+
		"container-mount-home no-container-mount-home container-remap-root no-container-remap-root container-writable container-readonly "+
		"no-container-entrypoint container-entrypoint", noArgument)
	names.add("kill-on-bad-exit immediate x11 exclusive", optionalArgument)
	names.add("accel-bind cpu-bind mpi bcast compress epilog prolog task-epilog task-prolog jobid het-group relative "+
		"threads wait slurmd-debug "+
		"msg-timeout cpu-freq send-libs treewidth export container-image container-mounts container-workdir container-name container-save "+
		"container-env", needsArgument)
	names.letters("l label u unbuffered K kill-on-bad-exit r relative T threads E preserve-env X disable-status Z " +
		"no-allocate I immediate W wait")
	return names
}

func (n optionNames) add(names string, takes argument) {
	for name := range strings.FieldsSeq(names) {
		n.long[name] = takes
	}
}

// letters takes pairs of a letter and a name.
func (n optionNames) letters(pairs string) {
	words := strings.Fields(pairs)
	for i := 0; i+1 < len(words); i += 2 {
		n.short[words[i][0]] = words[i+1]
	}
}
