package slurm

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// scriptFields is what a template sees; [Script.Render] documents it.
type scriptFields struct {
	Directives []string
	Name       string
	RunDir     string
	Program    string
	Modules    []string
	Venv       string
	Conda      string
	Lines      []string
	Srun       string
}

func (s Script) fields() (scriptFields, error) {
	if err := s.validate(); err != nil {
		return scriptFields{}, err
	}
	words := append(s.ownOptions(), s.userOptions()...)
	for i, word := range words {
		if err := checkWord(word); err != nil {
			return scriptFields{}, fmt.Errorf("sbatch option %s: %w", clip(word), err)
		}
		words[i] = quoteDirective(word)
	}
	extra, err := s.extraWords()
	if err != nil {
		return scriptFields{}, err
	}
	f := scriptFields{
		Directives: append(words, extra...),
		Name:       ShellQuote(s.Name),
		RunDir:     ShellQuote(s.RunDir),
		Program:    ShellQuote(filepath.Join(s.RunDir, "bin", "ddpbatch")),
		Lines:      s.Setup.Script,
		Srun:       strings.Join(s.srunOptions(), " "),
	}
	err = f.addSetup(s.Setup)
	return f, err
}

// ownOptions are the options of sbatch that ddpbatch sets.
func (s Script) ownOptions() []string {
	options := []Option{
		{Name: "job-name", Value: s.Name},
		{Name: "output", Value: s.outputPattern()},
		{Name: "open-mode", Value: "append"}, // a requeued job goes on in the same file
		{Name: "chdir", Value: s.WorkDir},
	}
	// sbatch derives ntasks, and reads it beside ntasks-per-node as something else: a maximum
	shape := slices.DeleteFunc(s.shape(), func(o Option) bool { return o.Name == "ntasks" })
	return s.words(append(options, shape...))
}

// shape is what sbatch and srun must both be told: how many tasks on how many nodes, with how
// many cores. srun must be told again because what it takes over from the job changed
// between releases: 22.05 and 23.02 ignore the job's cpus-per-task, 23.11 does not.
func (s Script) shape() []Option {
	tasks, cpus := 1, s.CPUsPerRank*s.Nproc
	if s.Mode == "task" {
		tasks, cpus = s.Nproc, s.CPUsPerRank
	}
	options := []Option{
		{Name: "nodes", Value: strconv.Itoa(s.Nodes)},
		{Name: "ntasks", Value: strconv.Itoa(s.Nodes * tasks)},
		{Name: "ntasks-per-node", Value: strconv.Itoa(tasks)},
	}
	if cpus > 0 {
		options = append(options, Option{Name: "cpus-per-task", Value: strconv.Itoa(cpus)})
	}
	return options
}

// outputPattern names the job's output file, in sbatch's patterns; a percent sign of the run
// directory is doubled to stand for itself.
func (s Script) outputPattern() string {
	file := "slurm-%j.log"
	if _, array := s.Options.Get("array"); array && !s.Options.skips("array") {
		file = "slurm-%A_%a.log"
	}
	return strings.ReplaceAll(s.RunDir, "%", "%%") + "/" + file
}

// userOptions are the options of the job file.
func (s Script) userOptions() []string {
	var options []Option
	for _, o := range s.Options.List {
		if o.Name != "nodes" && o.Name != "cpus-per-task" {
			options = append(options, o)
		}
	}
	return s.words(options)
}

// words writes options as sbatch and srun take them, less those that the site refuses.
func (s Script) words(options []Option) []string {
	var words []string
	for _, o := range options {
		if o.Name != "" && !s.Options.skips(o.Name) {
			words = append(words, o.word())
		}
	}
	return words
}

func (s Script) extraWords() ([]string, error) {
	var words []string
	for _, word := range s.Options.Extra {
		if err := CheckExtra(word); err != nil {
			return nil, err
		}
		if !s.Options.skips(extraName(word)) {
			words = append(words, quoteDirective(word))
		}
	}
	return words, nil
}

// srunOptions are constants and numbers, which need no quoting.
func (s Script) srunOptions() []string {
	return s.words(append(s.shape(),
		Option{Name: "cpu-bind", Value: "none"},      // an agent binds its workers itself
		Option{Name: "kill-on-bad-exit", Value: "1"}, // Slurm's default lets the other nodes wait for ever
		Option{Name: "mpi", Value: "none"},           // the ranks meet without PMI
		Option{Name: "export", Value: "ALL"},         // in spite of a SLURM_EXPORT_ENV=NONE
	))
}

// addSetup fills in the fields of [setup].
func (f *scriptFields) addSetup(setup Setup) error {
	for _, module := range setup.Modules {
		word, err := setupWord("setup.modules", module)
		if err != nil {
			return err
		}
		f.Modules = append(f.Modules, word)
	}
	var err error
	if setup.Conda != "" {
		if f.Conda, err = setupWord("setup.conda", setup.Conda); err != nil {
			return err
		}
	}
	if setup.Venv != "" {
		f.Venv, err = venvWord(setup.Venv)
	}
	return err
}

// setupWord quotes a name that a command takes as an argument, and would take for an option
// if it began with a dash.
func setupWord(key, name string) (string, error) {
	if err := checkWord(name); err != nil {
		return "", fmt.Errorf("%s %s: %w", key, clip(name), err)
	}
	if strings.TrimSpace(name) == "" || strings.HasPrefix(name, "-") {
		return "", fmt.Errorf("%s %s: it must be a name, not empty and not beginning with a dash", key, clip(name))
	}
	return ShellQuote(name), nil
}

// venvWord is the activation script of a venv as a shell word. A leading ~ is the home folder of
// the user on the node; other users' homes ("~ann") are not looked up.
func venvWord(venv string) (string, error) {
	if err := checkWord(venv); err != nil {
		return "", fmt.Errorf("setup.venv %s: %w", clip(venv), err)
	}
	script := strings.TrimRight(venv, "/") + "/bin/activate"
	if rest, found := strings.CutPrefix(script, "~"); found {
		if !strings.HasPrefix(rest, "/") {
			return "", errors.New("setup.venv: write the home folder of another user as a whole path")
		}
		return `"$HOME"` + ShellQuote(rest), nil
	}
	if !filepath.IsAbs(script) {
		script = "./" + script // or "." would look it up in PATH, or take it for an option
	}
	return ShellQuote(script), nil
}
