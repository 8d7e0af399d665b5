package slurm

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Setup is the [setup] table less env, which travels in the spec file.
type Setup struct {
	Modules []string `json:"modules,omitempty"`
	Venv    string   `json:"venv,omitempty"`
	Conda   string   `json:"conda,omitempty"`
	Script  []string `json:"script,omitempty"` // the user's own shell lines, verbatim by intention
}

// Validate says what keeps the setup out of a batch script. The error joins one for each fault; each
// begins with the key to blame ("setup.venv").
func (s Setup) Validate() error {
	var errs []error
	for _, module := range s.Modules {
		errs = append(errs, checkSetup("setup.modules", module, true))
	}
	if s.Venv != "" {
		errs = append(errs, checkSetup("setup.venv", s.Venv, false))
		if rest, found := strings.CutPrefix(s.Venv, "~"); found && rest != "" && rest[0] != '/' {
			errs = append(errs, errors.New("setup.venv: write the home folder of another user as a whole path"))
		}
	}
	if s.Conda != "" {
		errs = append(errs, checkSetup("setup.conda", s.Conda, true))
	}
	for i, line := range s.Script {
		if strings.Contains(line+"\n", "\r\n") {
			errs = append(errs, fmt.Errorf(`setup.script: item %d has DOS line ends (\r\n), which sbatch refuses: save the job file with Unix ones`, i+1))
		}
	}
	return errors.Join(errs...)
}

// checkSetup checks a text that becomes one word of the script. isName tells that a command takes it as an
// argument, and would take it for an option if it began with a dash.
func checkSetup(key, text string, isName bool) error {
	if err := checkWord(text); err != nil {
		return fmt.Errorf("%s: %s: %w", key, clip(text), err)
	}
	if isName && (strings.TrimSpace(text) == "" || strings.HasPrefix(text, "-")) {
		return fmt.Errorf("%s: %s: it must be a name, not empty and not beginning with a dash", key, clip(text))
	}
	return nil
}

// moduleWords are the modules as shell words.
func (s Setup) moduleWords() []string {
	var words []string
	for _, module := range s.Modules {
		words = append(words, ShellQuote(module))
	}
	return words
}

// condaWord is the conda environment as a shell word; "" where there is none.
func (s Setup) condaWord() string {
	if s.Conda == "" {
		return ""
	}
	return ShellQuote(s.Conda)
}

// venvWord is the activation script of the venv as a shell word; "" where there is none. A leading ~
// is the home folder of the user on the node; other users' homes ("~ann") are not looked up.
func (s Setup) venvWord() string {
	if s.Venv == "" {
		return ""
	}
	script := strings.TrimRight(s.Venv, "/") + "/bin/activate"
	if rest, found := strings.CutPrefix(script, "~"); found {
		return `"$HOME"` + ShellQuote(rest)
	}
	if !filepath.IsAbs(script) {
		script = "./" + script // or "." would look it up in PATH, or take it for an option
	}
	return ShellQuote(script)
}
