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

	"mvdan.cc/sh/v3/syntax"

	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// maxScript limits the size of a script, because the parser is recursive.
const maxScript = 64 << 10

// A Result is a job file made from something else.
type Result struct {
	Text         string   // a whole job.toml
	Untranslated int      // number of comments about something that it cannot express
	NotCopied    []string // what may be a secret, by name and line: "WANDB_API_KEY (line 12)"
	Launch       string   // the script's launch line, on one line and without secrets; "" for a command line
	LaunchLine   int      // its number in the script
}

// translation is the state of translating a script or a command line.
type translation struct {
	src       string // the text to parse
	firstLine int    // added to the lines of src
	isCommand bool   // src is a command line, without line numbers
	asked     *request
	variables map[string]variable
	functions map[string]bool
	items     []item
	inner     []item // what precedes a launcher in bash -c
	pieces    []piece
	expanded  int
	requeues  bool     // the script requeues its job
	withheld  []string // Result.NotCopied
	at        int      // the index of the launch line
	line      launch

	top, slurm, setup, env, container, launch, requeue section

	components []*component // of a heterogeneous job, without the first

	workdir     string // "": the directory where sbatch would be called
	modules     []string
	venv, conda string
}

// Options describe the context of a job file.
type Options struct {
	Source string // the name of the script or command line, for the first comment
	Name   string // the job's name if the script gives none
	Base   string // the directory where sbatch would be called, relative to the job file's; "." if it is the same
}

// Script makes a job file from a batch script for sbatch.
func Script(text string, o Options) (Result, error) {
	result, err := script(text, o)
	return result, clean(err)
}

// clean returns an error that does not affect a terminal, because it may quote the script.
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
	file, err := parseFile(text)
	if err != nil {
		return Result{}, err
	}
	t := newTranslation(text, newRequest(options, 0))
	t.requeues = requeueForm().MatchString(text)
	if err := t.readComponents(options); err != nil {
		return Result{}, err
	}
	t.statements(file.Stmts)
	t.unreadOptions(text, file)
	if first, _, _ := strings.Cut(text, "\n"); strings.Contains(first, " -l") || strings.Contains(first, "--login") {
		t.setup.note(1, "not translated: a login shell: the job gets the environment of the shell that submits, "+
			"including what your profile sets")
	}
	at := t.launchLine()
	if at < 0 {
		return Result{}, t.noLaunchLine()
	}
	chosen := t.items[at]
	for _, it := range t.items {
		if it.holds >= fromSrun && it.holds > chosen.strength {
			return Result{}, fmt.Errorf("%w; if the job is line %d, leave the %s out of the script",
				launchesInside(it), chosen.line, it.shape)
		}
	}
	if err := t.readLaunch(chosen); err != nil {
		return Result{}, fmt.Errorf("line %d: %w", chosen.line, err)
	}
	result := t.job(at, o)
	result.Launch, result.LaunchLine = quoted(strings.ReplaceAll(chosen.text, "\\\n", " ")), chosen.line
	return result, nil
}

// unreadOptions adds comments about lines for sbatch that sbatch does not read.
func (t *translation) unreadOptions(text string, file *syntax.File) {
	syntax.Walk(file, func(n syntax.Node) bool {
		c, ok := n.(*syntax.Comment)
		if !ok || !strings.HasPrefix(c.Text, "SBATCH") {
			return true
		}
		number, line := int(c.Pos().Line()), "#"+strings.TrimSpace(c.Text)
		before := text[:c.Pos().Offset()]
		before = before[strings.LastIndexByte(before, '\n')+1:]
		switch {
		case strings.TrimSpace(before) != "": // after a command, on its line
		case len(file.Stmts) > 0 && number > int(file.Stmts[0].Pos().Line()):
			t.slurm.note(number, "left out: %s: sbatch reads no options after the first command", quoted(line))
		case before != "":
			t.slurm.note(number, "left out: %s: sbatch reads options only at the beginning of a line", quoted(line))
		}
		return true
	})
}

// Command makes a job file from a command line.
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
		return Result{}, errors.New("write one command that begins with torchrun, srun, mpirun, accelerate " +
			"launch, python or your program")
	}
	if err := t.readLaunch(t.items[at]); err != nil {
		return Result{}, err
	}
	if t.line.srun != nil || t.line.nodes > 0 || t.line.total > 0 { // they would request the job itself
		nodes := max(1, t.line.nodes)
		if t.line.nodes == 0 && t.line.perNode.n > 0 && t.line.total > t.line.perNode.n {
			nodes = (t.line.total + t.line.perNode.n - 1) / t.line.perNode.n
		}
		t.asked = newRequest(slices.DeleteFunc(slices.Clone(t.line.srun), func(g slurm.Given) bool { return !forSbatch(g) }), nodes)
		t.line.srun = slices.DeleteFunc(t.line.srun, forSbatch)
	}
	if t.asked.gpus == 0 && t.line.isLauncher {
		t.slurm.note(0, "no GPUs are requested: add gpus_per_node = 8, for example, if the ranks use them")
	}
	if _, given := t.asked.get("time"); !given {
		t.slurm.note(0, `time = "01:00:00", partition = "...": every long option of sbatch is a key, with _ for -`)
	}
	return t.job(at, o), nil
}

// forSbatch reports whether an option of srun is one that requests a job.
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

func (t *translation) expander() *expander {
	return &expander{src: t.src, variables: t.variables, known: t.asked.variable, expanded: &t.expanded}
}

// launcherExpander returns an expander for what a launcher reads.
func (t *translation) launcherExpander() *expander {
	e := t.expander()
	e.flags = true
	return e
}

func (t *translation) fieldsOf(list []*syntax.Word) []field { return t.expander().fieldsOf(list) }

func (t *translation) valueOf(w *syntax.Word) field { return t.expander().valueOf(w) }

// launchLine returns the index of the launch line among the items: the likeliest, and of several equally likely the last. It returns -1 if
// there is none.
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
		if it.kind == isUntranslated && (mentionsLauncher(it.text) || strings.Contains(it.text, "srun")) {
			return launchesInside(it)
		}
	}
	return errors.New("it has no launch line, such as srun, torchrun or python")
}

// launchesInside is the error for a script whose launch line is inside a compound statement.
func launchesInside(it item) error {
	first, _, more := strings.Cut(it.text, "\n")
	shown, advice := quoted(first), "move it out"
	if more {
		shown += " ..."
	}
	if it.why == loopNote {
		advice += " of the loop, and write the loop's values into [sweep] of the job file (docs/job/sweeps.md), or for further " +
			"tries launch.max_restarts"
	}
	return fmt.Errorf("line %d: its launch line is inside %q, which cannot be translated: %s", it.line, shown, advice)
}

// readLaunch removes the launchers from the launch line.
func (t *translation) readLaunch(it item) error {
	t.line = launch{line: it.line}
	var command []string
	for _, w := range it.words {
		if text := shellText(w); positional(text) {
			t.line.notes = append(t.line.notes, "not translated: "+text+": the arguments of the script; add them to launch.command")
			continue
		}
		command = append(command, t.encode(w))
	}
	if err := t.peel(&t.line, command); err != nil {
		return errors.New(t.readable(err.Error()))
	}
	return nil
}

// positional reports whether a word consists only of the script's arguments.
func positional(text string) bool {
	text = strings.Trim(text, `"`)
	return slices.Contains([]string{"${@}", "$@", "${*}", "$*", "${1}", "${2}", "${3}", "${4}", "${5}"}, text)
}

// moveTo changes the working directory.
func (t *translation) moveTo(folder string) {
	if t.workdir == "" || filepath.IsAbs(folder) || folder[0] == '~' {
		t.workdir = folder
		return
	}
	t.workdir = path.Join(t.workdir, folder)
}
