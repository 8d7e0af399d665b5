package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/collbench"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/slurm/sim"
	"ddpbatch/templates"
)

// A completion says how a word that is being typed may continue.
type completion struct {
	ways  []way
	files string // what the shell also offers: "files" or "folders"; "": nothing
	open  bool   // no blank follows, because the word continues
}

// A way is one complete word, with a description.
type way struct{ word, help string }

// completer finds completions. Beside the files of defaults and the user's starter jobs it reads only names of files. It never asks Slurm
// or uses the network.
type completer struct {
	commands []*cli.Command
	dir      func(path string) string // makes a typed path absolute
	runs     func() string            // the default directory of runs; absolute
	starters func() []string          // the names of the user's own starter jobs
}

// complete returns how the last word of a command line may continue. words do not include the program's name.
func (c *completer) complete(words []string) completion {
	if len(words) == 0 {
		return completion{}
	}
	before, typed := words[:len(words)-1], words[len(words)-1]
	commands, path := c.commands, ""
	for i, word := range before {
		command := find(commands, word)
		if command == nil {
			return completion{}
		}
		path = strings.TrimSpace(path + " " + command.Name)
		if len(command.Subcommands) == 0 {
			l := line{command: command, path: path, typed: typed}
			return c.completeIn(l.read(before[i+1:]))
		}
		commands = command.Subcommands
	}
	to := completion{}
	if strings.HasPrefix(typed, "-") {
		to.offer(typed, "--help", "show help")
		if path == "" {
			to.offer(typed, "--version", "print the version")
		}
		return to
	}
	for _, command := range commands {
		if !command.Hidden {
			to.offer(typed, command.Name, command.Usage)
		}
	}
	return to
}

// offer adds a word if it begins with what was typed.
func (to *completion) offer(typed, word, help string) {
	if strings.HasPrefix(word, typed) {
		to.ways = append(to.ways, way{word, help})
	}
}

// offerAll adds those of words that begin with what was typed, each after prefix.
func (to *completion) offerAll(typed, prefix string, words []string) {
	for _, word := range words {
		to.offer(typed, prefix+word, "")
	}
}

// A line is what was typed for one command.
type line struct {
	command *cli.Command
	path    string            // "ckpt show"
	typed   string            // the word being typed
	flag    cli.Flag          // the flag whose value that word is; nil: it is not a value
	given   map[string]string // the given flags, by their first name, with their last values
	words   []string          // the other words
	dashed  bool              // a -- precedes
}

// read sorts the words of a line after its command.
func (l line) read(words []string) line {
	l.given = map[string]string{}
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case l.dashed, l.stops():
			l.words = append(l.words, word)
		case word == "--":
			l.dashed = true
		case len(word) < 2 || word[0] != '-':
			l.words = append(l.words, word)
		default:
			name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
			f := flagCalled(l.command.Flags, name)
			if f == nil {
				continue
			}
			if !hasValue && takesValue(l.command.Flags, "--"+f.Names()[0]) {
				if i++; i == len(words) {
					l.flag = f
					return l
				}
				value = words[i]
			}
			l.given[f.Names()[0]] = value
		}
	}
	return l
}

// stops reports whether no more flags of the command may follow, because the rest of its line belongs to another program.
func (l line) stops() bool { return l.command.SkipFlagParsing && len(l.words) > 0 }

// flagCalled returns the flag of a name, which may be spelled with underscores, or nil.
func flagCalled(flags []cli.Flag, name string) cli.Flag {
	name = strings.ReplaceAll(name, "_", "-")
	i := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return nil
	}
	return flags[i]
}

// completeIn completes a word of one command's line.
func (c *completer) completeIn(l line) (to completion) {
	flags := !l.dashed && !l.stops()
	name, _, hasValue := strings.Cut(strings.TrimLeft(l.typed, "-"), "=")
	switch {
	case l.flag != nil:
		return c.value(l, l.flag, "", l.typed)
	case flags && strings.HasPrefix(l.typed, "--") && hasValue:
		f := flagCalled(l.command.Flags, name)
		if f == nil || !takesValue(l.command.Flags, "--"+f.Names()[0]) {
			return to
		}
		prefix := l.typed[:strings.IndexByte(l.typed, '=')+1]
		return c.value(l, f, prefix, l.typed[len(prefix):])
	case flags && strings.HasPrefix(l.typed, "-"):
		return flagsFrom(l)
	case l.dashed && passesOn[l.path] && l.command.Name != "simulate" && l.command.Name != "rehearse":
		return to // words for sbatch
	}
	return c.argument(l)
}

// flagsFrom offers the command's flags, except those that were given and may not be repeated.
func flagsFrom(l line) (to completion) {
	for _, f := range l.command.Flags {
		shown, isShown := f.(cli.VisibleFlag)
		help, hasHelp := f.(cli.DocGenerationFlag)
		_, again := f.(*cli.StringSliceFlag)
		if _, given := l.given[f.Names()[0]]; !hasHelp || isShown && !shown.IsVisible() || given && !again {
			continue
		}
		for _, name := range f.Names() {
			if len(name) == 1 {
				name = "-" + name
			} else {
				name = "--" + name
			}
			to.offer(l.typed, name, strings.ReplaceAll(help.GetUsage(), "`", ""))
		}
	}
	to.offer(l.typed, "--help", "show help")
	return to
}

// value completes a flag's value. prefix precedes it in the same word.
func (c *completer) value(l line, f cli.Flag, prefix, typed string) (to completion) {
	name := f.Names()[0]
	switch name {
	case "set":
		to.offerAll(prefix+typed, prefix, jobfile.CompleteSet(typed))
		to.open = !strings.Contains(typed, "=")
		return to
	case "fault":
		to.offerAll(prefix+typed, prefix, strings.Split(sim.Kinds, ", "))
		to.open = true // options follow
		return to
	}
	if at := strings.LastIndexByte(typed, ':') + 1; at > 0 && name == "after" {
		to.offerAll(prefix+typed, prefix+typed[:at], runview.Endings())
		return to
	}
	words := flagWords(l.path, name)
	if l.path == "init" && name == "template" {
		words = append(words, c.starters()...)
		slices.Sort(words)
		words = slices.Compact(words) // the user's own take precedence over those of the same name
	}
	if words != nil {
		to.offerAll(prefix+typed, prefix, words)
		return to
	}
	return c.named(l, placeholder(f), prefix, typed)
}

// named completes an argument that has this name in a help text, such as FILE or RUN.
func (c *completer) named(l line, what, prefix, typed string) (to completion) {
	switch what = strings.Trim(what, "[]."); what {
	case "FILE", "FILE.safetensors":
		to.files = "files"
	case "FOLDER", "DIR":
		to.files = "folders"
	case "JOB", "RUN":
		return c.runNames(l, prefix, typed)
	case "A", "B": // of ckpt diff: also files of weights
		if to = c.runNames(l, prefix, typed); to.files != "" {
			to.files = "files"
		}
	}
	return to
}

// placeholder returns the word for a flag's value in its help.
func placeholder(f cli.Flag) string {
	if named, ok := f.(*valueHelp); ok {
		return named.word
	}
	help, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	_, rest, _ := strings.Cut(help.GetUsage(), "`")
	word, _, _ := strings.Cut(rest, "`")
	return word
}

// readsJob names the commands whose JOB is a job file. For other commands it is a submitted job.
var readsJob = map[string]bool{
	"check": true, "render": true, "submit": true, "config show": true, "train": true, "simulate": true, "rehearse": true,
}

// argument completes a word that is not a flag.
func (c *completer) argument(l line) (to completion) {
	if words := argumentWords(l.path); words != nil && len(l.words) == 0 {
		to.offerAll(l.typed, "", words)
		return to
	}
	what := strings.Fields(l.command.ArgsUsage)
	switch {
	case l.dashed || l.path == "run":
		to.files = "files" // of the command to run, and of its arguments
	case readsJob[l.path]:
		if len(l.words) == 0 {
			to.files = "files"
		}
	case len(what) > len(l.words):
		at := len(l.words)
		if what[at] == "[STEP]" && at+1 < len(what) { // it may be omitted
			at++
		}
		return c.named(l, what[at], "", l.typed)
	case len(what) > 0 && strings.HasSuffix(strings.TrimSuffix(what[len(what)-1], "]"), "..."):
		return c.named(l, what[len(what)-1], "", l.typed)
	}
	return to
}

// maxRuns is the largest number of runs offered. Nobody reads more, and a shell asks before it shows so many.
const maxRuns = 1000

// runNames offers job IDs and run directories. For a path, or if no run begins with what was typed, it offers directories.
func (c *completer) runNames(l line, prefix, typed string) (to completion) {
	if strings.ContainsRune(typed, '/') || strings.HasPrefix(typed, ".") || strings.HasPrefix(typed, "~") {
		return completion{files: "folders"}
	}
	var parent string
	if given := l.given["runs"]; given != "" {
		parent = c.dir(given)
	} else {
		parent = c.runs()
	}
	for _, name := range rundir.Names(parent, typed) {
		if len(to.ways) == maxRuns {
			break
		}
		to.offer(prefix+typed, prefix+name.Text, name.Job)
	}
	if len(to.ways) == 0 {
		to.files = "folders"
	}
	return to
}

// argumentWords returns the words that the first argument of a command may be, or nil if it is something else.
func argumentWords(path string) []string {
	switch path {
	case "completion":
		return templates.Shells()
	case "bench":
		return collbench.Names()
	}
	return nil
}

// flagWords returns the words that a flag takes, or nil if it takes something else. The flag's help lists them too.
func flagWords(path, flag string) []string {
	switch path + " --" + flag {
	case "init --template":
		var names []string
		for _, s := range templates.Starters() {
			names = append(names, s.Name)
		}
		return names
	case "env --format":
		return []string{"shell", "json", "dotenv"}
	case "bench --transport":
		return []string{"auto", "shm", "tcp", "ucx"}
	case "bench --op":
		return []string{"sum", "prod", "min", "max"}
	case "ckpt export --format":
		return []string{"safetensors", "npy"}
	case "simulate --distribution", "rehearse --distribution":
		return []string{"block", "cyclic"}
	case "simulate --slurm", "rehearse --slurm":
		return []string{"22.05", "25.11"}
	case "run --nproc-per-node":
		return []string{"gpu", "cpu", "auto"}
	case "run --rdzv-backend":
		return []string{"static", "c10d"}
	case "run --gpus":
		return []string{"all", "one", "auto"}
	case "run --numa-binding":
		return []string{"node", "socket", "exclusive", "core-complex"}
	}
	return nil
}
