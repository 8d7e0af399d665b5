package translate

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ddpbatch/internal/torchrun"
	"ddpbatch/slurm"
)

// How likely a command is the job's launch line.
const (
	notLaunched  = iota
	fromProgram  // an unknown program
	fromPython   // a Python script
	fromOneTask  // a program that srun starts once
	fromSrun     // a program that srun or mpirun starts
	fromLauncher // torchrun and similar launchers
)

var shells = []string{"sh", "bash", "dash", "ksh", "zsh"}

// plainPrefixes run the command after them in their own place.
var plainPrefixes = []string{"exec", "time", "command", "nohup"}

// setupModules are Python modules that set up an environment.
var setupModules = []string{"pip", "venv", "ensurepip"}

// strength returns how likely a command is the launch line.
func strength(words []field) int {
	for len(words) > 1 && slices.Contains(plainPrefixes, programOf(words)) {
		words = words[1:]
	}
	program, texts := programOf(words), textsOf(words)
	isStarter := torchrun.IsStarter(program)
	switch {
	case program == "trap" || program == "echo" || program == "printf":
		return notLaunched
	case slices.ContainsFunc(texts, mentionsLauncher):
		return fromLauncher
	case slices.Contains([]string{"conda", "mamba", "micromamba"}, program) && len(texts) > 1 && texts[1] == "run":
		return fromPython
	case torchrun.IsInterpreter(program) && len(texts) > 2 && texts[1] == "-m" && slices.Contains(setupModules, texts[2]):
		return notLaunched
	case isStarter && onlyLooks(texts):
		return notLaunched
	case isStarter && startsOnce(texts):
		return fromOneTask
	case isStarter:
		return fromSrun
	case slices.Contains(utilities, program) || slices.Contains(endsShell, program) || actsOnJobs(words):
		return notLaunched
	case torchrun.IsInterpreter(program) || strings.HasSuffix(program, ".py"):
		return fromPython
	case slices.ContainsFunc(texts, torchrun.IsInterpreter):
		return fromPython
	}
	return fromProgram
}

func textsOf(words []field) []string {
	texts := make([]string, len(words))
	for i, w := range words {
		for _, p := range w {
			texts[i] += p.text
		}
	}
	return texts
}

// mentionsLauncher reports whether a text contains a launcher.
func mentionsLauncher(text string) bool {
	return slices.ContainsFunc(strings.Fields(text), func(word string) bool {
		return torchrun.IsLauncher(word) && !torchrun.IsStarter(word)
	})
}

// onlyLooks reports whether srun starts a program that only shows something about the nodes.
func onlyLooks(texts []string) bool { return slices.Contains(quietPrograms, stepProgram(texts)) }

// stepProgram returns the name of the program that srun starts, or "" if it is not known.
func stepProgram(texts []string) string {
	_, rest, err := slurm.SrunOptions(texts[1:])
	if err != nil || len(rest) == 0 {
		return ""
	}
	return path.Base(rest[0])
}

// startsOnce reports whether srun starts one task, which is something before or after the job's own work.
func startsOnce(texts []string) bool {
	given, _, err := slurm.SrunOptions(texts[1:])
	return err == nil && slices.ContainsFunc(given, func(g slurm.Given) bool { return g.Name == "ntasks" && g.Value == "1" })
}

// A launch is what the launch line says about the ranks.
type launch struct {
	line        int
	command     []string // encoded
	perNode     count    // ranks that one launcher starts
	total       int      // ranks on all nodes, if the launcher counts those
	usesSrun    bool
	srun        []slurm.Given
	isLauncher  bool // torchrun or a similar launcher starts the ranks, and not srun
	mpi         bool
	nodes       int // according to the launcher; 0: not given
	minNodes    int
	maxRestarts int
	numa, grace string
	env         []assignment
	container   *contained // nil: none
	notes       []string
}

// A count is a number of ranks, or "gpu", "cpu" or "auto"; the zero value: not given.
type count struct {
	n    int
	word string
}

func (c count) given() bool { return c.n > 0 || c.word != "" }

// An assignment is a variable for the ranks.
type assignment struct{ name, value string }

// encode turns a field into a text in which a number between NULs stands for each dynamic piece, so that other code can split it.
func (t *translation) encode(f field) string {
	var b strings.Builder
	for _, p := range f {
		if p.dynamic {
			fmt.Fprintf(&b, "\x00%d\x00", len(t.pieces))
			t.pieces = append(t.pieces, p)
			continue
		}
		b.WriteString(p.text)
	}
	return b.String()
}

// decode returns the field that a text stands for.
func (t *translation) decode(text string) (f field) {
	for i, part := range strings.Split(text, "\x00") {
		if i%2 == 0 {
			if part != "" || text == "" {
				f = append(f, piece{text: part})
			}
			continue
		}
		if at, err := strconv.Atoi(part); err == nil && at >= 0 && at < len(t.pieces) {
			f = append(f, t.pieces[at])
		}
	}
	return f
}

// resolved returns a launcher's text with the values that the script gives to variables that ddpbatch itself sets.
func (t *translation) resolved(text string) string {
	f := t.decode(text)
	for i, p := range f {
		if p.fixed != "" {
			f[i] = piece{text: p.fixed}
		}
	}
	if fixed, ok := f.constant(); ok {
		return fixed
	}
	return text
}

// isConstant reports whether an encoded word has no dynamic piece.
func isConstant(text string) bool { return !strings.Contains(text, "\x00") }

// shellText formats a field as a shell word.
func shellText(f field) string {
	var b strings.Builder
	for _, p := range f {
		switch {
		case p.dynamic && p.quoted:
			b.WriteString(`"` + p.text + `"`)
		case p.dynamic:
			b.WriteString(p.text)
		default:
			b.WriteString(slurm.ShellQuote(p.text))
		}
	}
	return b.String()
}

var codeForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\x00(\d+)\x00|\\x00(\d+)\\x00`) })

// readable replaces the codes of encode in a message.
func (t *translation) readable(text string) string {
	return codeForm().ReplaceAllStringFunc(text, func(code string) string {
		return shellText(t.decode("\x00" + strings.Trim(strings.ReplaceAll(code, `\x00`, ""), "\x00") + "\x00"))
	})
}

// peel removes launchers from a command, from the outermost to the program.
func (t *translation) peel(l *launch, command []string) error {
	for depth := 0; ; depth++ {
		if len(command) > 0 && isApptainer(command) && l.container == nil {
			if rest, ok := t.peelApptainer(l, command); ok {
				command = rest
			}
		}
		if len(command) == 0 || command[0] == "" {
			return fmt.Errorf("no program follows %s", l.last())
		}
		if depth > 8 {
			return fmt.Errorf("too many nested launchers")
		}
		program := path.Base(command[0])
		var err error
		switch {
		case slices.Contains(plainPrefixes, program):
			command = command[1:]
		case program == "srun":
			command, err = t.peelSrun(l, command[1:])
		case torchrun.IsStarter(program):
			command, err = t.peelMPI(l, command)
		case torchrun.IsInterpreter(program) && len(command) > 2 && command[1] == "-m" && torchrun.IsLauncher(command[2]):
			return t.peelLauncher(l, command[2], command[0], command[3:])
		case torchrun.IsInterpreter(program) && len(command) > 3 && command[2] == "-m" && torchrun.IsLauncher(command[3]): // python -u -m
			return t.peelLauncher(l, command[3], command[0], command[4:])
		case torchrun.IsLauncher(program):
			return t.peelLauncher(l, program, "", command[1:])
		case slices.Contains(shells, program) && scriptAt(command) > 0:
			var done bool
			if command, done, err = t.peelShell(l, command); done {
				l.command = command
				return err
			}
		default:
			return t.peelWrapper(l, command)
		}
		if err != nil {
			return err
		}
	}
}

func (l *launch) last() string {
	if l.usesSrun {
		return "srun's options"
	}
	return "the launcher"
}

// scriptAt returns the index of the script in "bash -c SCRIPT", or 0 if there is none.
func scriptAt(command []string) int {
	for i, word := range command {
		if i > 0 && (len(word) < 2 || word[0] != '-') {
			return 0
		}
		if i > 0 && word[1] != '-' && strings.HasSuffix(word, "c") && i+1 < len(command) {
			return i + 1
		}
	}
	return 0
}

// peelShell looks into bash -c. If its script is one command, that command is used. In a longer script a launcher must come last, and what
// precedes it becomes part of the setup. done means that the command stays as it is.
func (t *translation) peelShell(l *launch, command []string) (rest []string, done bool, err error) {
	at := scriptAt(command)
	var script strings.Builder
	for _, p := range t.decode(command[at]) {
		script.WriteString(p.text)
	}
	inner := script.String()
	list, err := parse(inner)
	if err != nil || len(list) == 0 {
		return command, true, nil
	}
	sub := newTranslation(inner, t.asked)
	sub.variables, sub.functions, sub.expanded, sub.firstLine = t.variables, t.functions, t.expanded, l.line-1
	sub.statements(list)
	last := len(sub.items) - 1
	isLast := last >= 0 && sub.items[last].kind == mayLaunch &&
		!slices.ContainsFunc(sub.items[last].notes, func(note string) bool { return note != timeNote })
	for i := range sub.items[:max(0, last)] {
		isLast = isLast && sub.items[i].kind != isUntranslated && sub.items[i].kind != mayLaunch
	}
	if !isLast || last > 0 && sub.items[last].strength < fromLauncher {
		if mentionsLauncher(inner) {
			return nil, true, fmt.Errorf("the script of %s does more than start a launcher: write launch.command yourself",
				path.Base(command[0]))
		}
		return command, true, nil
	}
	for i := range sub.items[:last] {
		sub.items[i].line = l.line
	}
	t.inner = append(t.inner, sub.items[:last]...)
	t.inner = append(t.inner, sub.items[last].prefix...)
	l.notes = append(l.notes, sub.items[last].notes...)
	_, single := t.decode(command[at]).constant() // in single quotes, for example: its own shell expands nothing in it
	for _, w := range sub.items[last].words {
		for i := range w {
			w[i].inRanks = single
		}
		rest = append(rest, t.encode(w))
	}
	return rest, false, nil
}

// peelWrapper leaves a program as it is, and returns an error for a launcher that another program starts.
func (t *translation) peelWrapper(l *launch, command []string) error {
	for i, word := range command {
		isModule := strings.Contains(word, "torch.distributed.") || strings.Contains(word, ".launch") // of python -m
		isLauncher := torchrun.IsLauncher(word) && !torchrun.IsStarter(word) && !isModule
		isPython := torchrun.IsInterpreter(word) && i+2 < len(command) && command[i+1] == "-m" && torchrun.IsLauncher(command[i+2])
		isShell := slices.Contains(shells, path.Base(word)) && scriptAt(command[i:]) > 0
		if i == 0 || !isLauncher && !isPython && !isShell {
			continue
		}
		if !torchrun.IsWrapper(command[0]) {
			break // an argument of a program
		}
		if err := t.peel(l, command[i:]); err != nil {
			return err
		}
		l.command = slices.Concat(command[:i], l.command)
		return nil
	}
	l.command = command
	return nil
}

// peelSrun removes srun's options.
func (t *translation) peelSrun(l *launch, words []string) (rest []string, err error) {
	given, rest, err := slurm.SrunOptions(words)
	if err != nil {
		return nil, fmt.Errorf("srun: %w", err)
	}
	if slices.ContainsFunc(given, func(g slurm.Given) bool { return g.Name == "multi-prog" }) {
		return nil, fmt.Errorf("srun --multi-prog starts several programs, but launch.command is only one: write one that uses RANK")
	}
	if l.usesSrun {
		return nil, fmt.Errorf("srun starts another srun")
	}
	l.usesSrun, l.srun = true, given
	return rest, nil
}
