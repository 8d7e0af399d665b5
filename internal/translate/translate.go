package translate

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// maxScript bounds a script: the parser calls itself for what stands in brackets.
const maxScript = 64 << 10

// A Result is a job file that was made of something else.
type Result struct {
	Text         string // a whole job.toml
	Untranslated int    // so many comments tell of something that has no place in it
}

// translation is a script, or a command line, on its way to a job file.
type translation struct {
	src       string // the text that is parsed
	firstLine int    // added to the lines of src
	isCommand bool   // src is a command line, whose lines have no numbers
	asked     *request
	variables map[string]variable
	functions map[string]bool
	items     []item
	inner     []item // what stands before a launcher in bash -c
	pieces    []piece
	expanded  int
	requeues  bool // the script has its job started again
	at        int  // the index of the launch line
	line      launch

	top, slurm, setup, env, launch, requeue section

	workdir     string // "": the folder where sbatch would be called
	modules     []string
	venv, conda string
}

// Options say around what a job file is made.
type Options struct {
	Source string // what the script or command line is called, for the first comment
	Name   string // the job's name where the script gives none
	Base   string // the folder where sbatch would be called, as seen from the job file's; "." where it is the same
}

// Script makes a job file of a batch script for sbatch.
func Script(text string, o Options) (Result, error) {
	result, err := script(text, o)
	return result, clean(err)
}

// clean is an error that does nothing to a terminal: it may quote the script.
func clean(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(words.Clean(strings.ToValidUTF8(err.Error(), "\ufffd")))
}

func script(text string, o Options) (Result, error) {
	text, err := checkScript(text)
	if err != nil {
		return Result{}, err
	}
	options, err := slurm.Directives(text)
	if err != nil {
		return Result{}, err
	}
	list, err := parse(text)
	if err != nil {
		return Result{}, err
	}
	t := newTranslation(text, newRequest(options, 0))
	t.requeues = requeueForm().MatchString(text)
	t.otherParts(options)
	t.statements(list)
	if first, _, _ := strings.Cut(text, "\n"); strings.Contains(first, " -l") || strings.Contains(first, "--login") {
		t.setup.note(1, "not translated: a login shell: what your profile sets goes with the job from the shell that submits")
	}
	at := t.launchLine()
	if at < 0 {
		return Result{}, t.noLaunchLine()
	}
	if err := t.readLaunch(t.items[at]); err != nil {
		return Result{}, fmt.Errorf("line %d: %w", t.items[at].line, err)
	}
	return t.job(at, o)
}

// Command makes a job file of a command line.
func Command(line string, o Options) (Result, error) {
	result, err := command(line, o)
	return result, clean(err)
}

func command(line string, o Options) (Result, error) {
	if err := checkText(line); err != nil {
		return Result{}, err
	}
	list, err := parse(line)
	if err != nil {
		return Result{}, err
	}
	t := newTranslation(line, newRequest(nil, 0))
	t.isCommand = true
	t.statements(list)
	at := t.launchLine()
	if at < 0 || len(t.items) != 1 {
		return Result{}, errors.New("write one command, which begins with torchrun, srun, mpirun, accelerate launch, python or your program")
	}
	if err := t.readLaunch(t.items[at]); err != nil {
		return Result{}, err
	}
	if t.line.srun != nil || t.line.nodes > 0 || t.line.total > 0 { // they ask for the job itself
		nodes := max(1, t.line.nodes)
		if t.line.nodes == 0 && t.line.perNode.n > 0 && t.line.total > t.line.perNode.n {
			nodes = (t.line.total + t.line.perNode.n - 1) / t.line.perNode.n
		}
		t.asked = newRequest(slices.DeleteFunc(slices.Clone(t.line.srun), func(g slurm.Given) bool { return !forSbatch(g) }), nodes)
		t.line.srun = slices.DeleteFunc(t.line.srun, forSbatch)
	}
	if t.asked.gpus == 0 && t.line.isLauncher {
		t.slurm.note(0, "no GPUs are asked for: gpus_per_node = 8, say, where the ranks use them")
	}
	if _, given := t.asked.get("time"); !given {
		t.slurm.note(0, `time = "01:00:00", partition = "...": every long option of sbatch is a key, with _ for -`)
	}
	return t.job(at, o)
}

// forSbatch tells whether an option of srun's is one that asks for a job.
func forSbatch(g slurm.Given) bool {
	if slices.Contains([]string{"ntasks", "ntasks-per-node", "ntasks-per-gpu", "job-name", "chdir"}, g.Name) {
		return true
	}
	return slices.Contains(slurm.OptionKeys(), optionKey(g.Name)) && g.Name != "cpu-freq"
}

func newTranslation(src string, asked *request) *translation {
	return &translation{src: src, asked: asked, variables: map[string]variable{}, functions: map[string]bool{}}
}

var (
	requeueForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`scontrol\s+requeue`) })
	variableForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })
	shellForm    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^#!\s*(?:/\S*/)?(?:env\s+(?:-S\s*)?)?(?:/\S*/)?(?:ba|da|k)?sh(?:\s|$)`)
	})
)

// checkScript refuses what sbatch refuses, and what is no script for a shell. Comments in another encoding are mended.
func checkScript(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("the script is empty")
	}
	first, _, _ := strings.Cut(text, "\n")
	switch {
	case !strings.HasPrefix(text, "#!"):
		return "", errors.New(`it is no batch script: its first line must begin with #!, as in "#!/bin/bash"`)
	case strings.Contains(text, "\r\n"):
		return "", errors.New("it has DOS line ends, which sbatch refuses: save it with Unix ones")
	case !shellForm().MatchString(first):
		return "", fmt.Errorf("line 1: %s: only scripts for sh, bash, dash and ksh can be translated", words.Quoted(first, maxShown))
	}
	var b strings.Builder
	number := 0
	for line := range strings.Lines(text) {
		number++
		if !utf8.ValidString(line) {
			if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "#") || strings.HasPrefix(line, "#SBATCH") {
				return "", fmt.Errorf("line %d: it is not UTF-8 text", number)
			}
			line = strings.ToValidUTF8(line, "?")
		}
		b.WriteString(line)
	}
	return b.String(), checkText(b.String())
}

func checkText(text string) error {
	switch {
	case len(text) > maxScript:
		return fmt.Errorf("it is longer than %d bytes", maxScript)
	case strings.Contains(text, "\x00"):
		return errors.New("it holds a NUL byte")
	case !utf8.ValidString(text):
		return errors.New("it is not UTF-8 text")
	}
	return nil
}

// parse reads the text of a shell.
func parse(text string) ([]*syntax.Stmt, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		if at, ok := errors.AsType[syntax.ParseError](err); ok {
			return nil, fmt.Errorf("line %d: no shell can read it: %s", at.Pos.Line(), quoted(at.Text))
		}
		return nil, fmt.Errorf("no shell can read it: %s", quoted(err.Error()))
	}
	return file.Stmts, nil
}

func (t *translation) expander() *expander {
	return &expander{src: t.src, variables: t.variables, known: t.asked.variable, expanded: &t.expanded}
}

func (t *translation) fieldsOf(list []*syntax.Word) []field { return t.expander().fieldsOf(list) }

func (t *translation) valueOf(w *syntax.Word) field { return t.expander().valueOf(w) }

// source is the text of a node, with the here-documents that belong to it.
func (t *translation) source(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	syntax.Walk(n, func(n syntax.Node) bool {
		if r, ok := n.(*syntax.Redirect); ok && r.Hdoc != nil {
			end := int(r.Hdoc.End().Offset())
			if line := strings.IndexByte(t.src[min(end, len(t.src)):], '\n'); line >= 0 {
				to = max(to, end+line)
			} else {
				to = len(t.src)
			}
		}
		return true
	})
	if from < 0 || to > len(t.src) || from > to {
		return ""
	}
	return strings.TrimRight(strings.TrimSuffix(strings.TrimRight(t.src[from:to], " \t\n"), ";"), " \t")
}

// launchLine is the index of the launch line among the items: the likeliest, and of several the last; -1: none.
func (t *translation) launchLine() int {
	at, strongest := -1, notLaunched
	for i, it := range t.items {
		if it.kind == mayLaunch && it.strength >= strongest {
			at, strongest = i, it.strength
		}
	}
	return at
}

func (t *translation) noLaunchLine() error {
	for _, it := range t.items {
		if it.kind == isUntranslated && mentionsLauncher(it.text) || strings.Contains(it.text, "srun") {
			return fmt.Errorf("line %d: its launch line stands in %s, into which nobody looks here: move it out", it.line, quoted(words.Cut(it.text, 40)))
		}
	}
	return errors.New("it starts no program: there is no launch line, such as srun, torchrun or python")
}

// readLaunch takes the launchers off the launch line.
func (t *translation) readLaunch(it item) error {
	t.line = launch{line: it.line}
	var command []string
	for _, w := range it.words {
		if text := shellText(w); positional(text) {
			t.line.notes = append(t.line.notes, "not translated: "+text+": the arguments of the script; write them into launch.command")
			continue
		}
		command = append(command, t.encode(w))
	}
	if err := t.peel(&t.line, command); err != nil {
		return errors.New(t.readable(err.Error()))
	}
	return nil
}

// positional tells whether a word is made of the arguments of the script alone.
func positional(text string) bool {
	text = strings.Trim(text, `"`)
	return slices.Contains([]string{"${@}", "$@", "${*}", "$*", "${1}", "${2}", "${3}", "${4}", "${5}"}, text)
}

// moveTo changes the working directory.
func (t *translation) moveTo(line int, folder string) {
	if t.workdir == "" || filepath.IsAbs(folder) || folder[0] == '~' {
		t.workdir = folder
		return
	}
	t.workdir = path.Join(t.workdir, folder)
}

// job writes the job file.
func (t *translation) job(at int, o Options) (Result, error) {
	l := &t.line
	t.at = at
	if g, given := t.asked.get("chdir"); given {
		t.moveTo(g.Line, g.Value)
	}
	before := slices.Concat(t.items[:at], t.items[at].prefix, t.inner)
	for i := range before {
		if before[i].kind == mayLaunch {
			before[i] = t.notTheLaunchLine(before[i])
		}
	}
	command, needed := t.commandWords(l)
	t.setupOf(before, needed)
	for _, it := range t.items[at+1:] {
		t.setup.note(it.line, "not translated: %s: it stands behind the launch line", quoted(it.text))
	}
	for _, v := range l.env {
		t.setEnv(l.line, v.name, t.readable(v.value))
	}
	t.topKeys(o)
	t.rankKeys()
	t.launchKeys(command)
	t.slurmKeys()
	t.requeueKeys()
	return t.write(o), nil
}

// notTheLaunchLine is what becomes of another command that might have been it.
func (t *translation) notTheLaunchLine(it item) item {
	if it.strength >= fromOneTask {
		it.kind, it.why = isUntranslated, fmt.Sprintf("a job has one launch line, and line %d is taken for it", t.line.line)
		return it
	}
	if it.apart {
		it.kind, it.why = isUntranslated, "a background process"
		return it
	}
	it.kind = runsLine
	return it
}

func needs(list []field) (names []string) {
	for _, f := range list {
		names = append(names, f.names()...)
	}
	return names
}

// commandWords is launch.command. A word that only the shell knows makes it a script of bash's.
func (t *translation) commandWords(l *launch) (command, needed []string) {
	var fields []field
	dynamic := false
	for _, word := range l.command {
		f := t.decode(word)
		_, fixed := f.constant()
		dynamic = dynamic || !fixed
		fields = append(fields, f)
	}
	needed = needs(fields)
	for _, f := range fields {
		text, _ := f.constant()
		if dynamic {
			text = shellText(f)
		}
		command = append(command, text)
	}
	if shown, found := withoutSecrets(command); found {
		l.notes = append(l.notes, "not copied: what may be a secret in the command; give it by a variable of the shell that submits")
		command = shown
	}
	if dynamic {
		return []string{"bash", "-c", "exec " + strings.Join(command, " ")}, needed
	}
	return command, needed
}

// topKeys are the keys outside all tables.
func (t *translation) topKeys(o Options) {
	t.top.put("schema", 1, "")
	name, line, comment := o.Name, 0, "the script's own name, as Slurm has it where no --job-name is given"
	if t.isCommand {
		name, comment = programName(t.line.command), ""
	}
	if g, given := t.asked.get("job-name"); given {
		name, line, comment = g.Value, g.Line, ""
	}
	t.top.put("name", jobName(name), comment)
	if comment == "" && jobName(name) != name {
		t.top.note(line, "%s has characters that a name cannot have here", quoted("--job-name="+name))
	}
	workdir := filepath.ToSlash(o.Base)
	if t.workdir != "" {
		workdir = t.workdir
		if !filepath.IsAbs(workdir) && workdir[0] != '~' {
			workdir = path.Join(filepath.ToSlash(o.Base), workdir)
		}
	}
	if !isLine(workdir) {
		t.top.note(0, "not translated: the working directory, which is not one line of text")
		workdir = "."
	}
	t.top.put("workdir", workdir, "where ranks run; relative to this file")
	t.top.put("run_dir", "runs", "on a file system that all nodes share")
}

// programName is what a command is called: its Python script or module, or its program.
func programName(command []string) string {
	name := command[0]
	for i, word := range command {
		if strings.HasSuffix(word, ".py") {
			name = strings.TrimSuffix(word, ".py")
			break
		}
		if word == "-m" && i+1 < len(command) {
			name = command[i+1][strings.LastIndexByte(command[i+1], '.')+1:]
			break
		}
	}
	return path.Base(name)
}

// jobName makes a name of one that may have other characters.
func jobName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '-'
	}, name)
	const most = 64
	if name = strings.TrimLeft(name, ".-"); name == "" {
		return "job"
	}
	return name[:min(len(name), most)]
}

// isLine tells whether a text is one line that does nothing to a terminal.
func isLine(s string) bool { return s != "" && !strings.ContainsFunc(s, words.Unsafe) }

// write puts the tables together.
func (t *translation) write(o Options) Result {
	var b strings.Builder
	for _, s := range []struct {
		name string
		*section
	}{{"", &t.top}, {"slurm", &t.slurm}, {"setup", &t.setup}, {"setup.env", &t.env}, {"launch", &t.launch}, {"requeue", &t.requeue}} {
		s.write(&b, s.name)
	}
	untranslated := strings.Count(b.String(), ": not translated: ") + strings.Count(b.String(), "\n# not translated: ")
	head := "# Made of " + comment(o.Source) + " by \"ddpbatch init --from\".\n"
	if untranslated > 0 {
		head += "# What is not translated, " + words.Plural(untranslated, "part") + ", is told of below.\n"
	}
	return Result{Text: head + "\n" + b.String(), Untranslated: untranslated}
}
