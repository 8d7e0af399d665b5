package slurm

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// maxScript is the longest script that Slurm takes by default
// (max_script_size in slurm.conf(5)).
const maxScript = 4 << 20

// maxFill is how long filling in a template may take. It usually takes milliseconds.
const maxFill = 10 * time.Second

// Script is what a batch script is rendered from. The options nodes and cpus-per-task in Options are
// ignored: Nodes and CPUsPerRank take their place.
type Script struct {
	Name        string // job name
	RunDir      string // absolute
	WorkDir     string // absolute
	Options     Options
	Words       []string // further options of sbatch, on its command line and not in the script
	Nodes       int
	LeastNodes  int    // the fewest nodes that Slurm may start the job on; 0: Nodes
	Mode        string // "agent": one task a node | "task": one task a rank
	Nproc       int    // ranks a node; the largest number if nodes differ; 0: known only on the node
	CPUsPerRank int    // 0: the job does not ask for a number
	MinNodes    int    // the fewest nodes that the step goes on with if others are lost; 0: all
	Components  []Component
	Setup       Setup

	Requeue bool          // Slurm may start the job again, and warns it before its end
	Chain   bool          // another job goes on after the time limit, so Slurm warns the job, too
	Lead    time.Duration // how long before the job's end the warning comes, in whole seconds
	Grace   time.Duration // how long workers have between TERM and KILL
}

// Component is a further component of a heterogeneous job; the script itself asks for the first one. Its fields mean the same as those
// of [Script], for its own nodes. Only the list of Options is used.
type Component struct {
	Options     Options
	Nodes       int
	Nproc       int
	CPUsPerRank int
}

// Render fills the template (templates.Batch or a user's own), a text/template whose fields are
//
//	.Directives  options of sbatch, each to be written after "#SBATCH " on a line of its own
//	.Name        the job's name
//	.RunDir      the run directory
//	.Program     the ddpbatch binary in the run directory
//	.Modules     names to "module load"
//	.Venv        the activation script of a Python venv; empty if the job has none
//	.Conda       the name or path of a conda environment; empty if the job has none
//	.Lines       the user's own shell lines
//	.Srun        srun's options, as one text; it may contain the shell variable ddpbatch_mpi. For a heterogeneous job it has the
//	             options of each component, with the program and "run" after all but the last
//	.Elastic     whether the run may go on with fewer nodes
//	.Tasks       whether each rank is a task of srun
//	.Het         whether the job is heterogeneous
//
// All but .Lines are quoted already: .Directives for Slurm's reader, the rest as words
// of a shell. So a template cannot turn a name, a path or a value into shell text.
// Only .Lines is shell text, on purpose. Values that cannot be
// written safely (control characters, a backslash in the run directory) are errors.
func (s Script) Render(text string) (string, error) {
	fields, err := s.fields()
	if err != nil {
		return "", err
	}
	parsed, err := template.New("batch").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("read the script template: %w", err)
	}
	script, err := fill(parsed, fields, maxFill)
	if err != nil {
		return "", fmt.Errorf("fill the script template: %w", err)
	}
	if err := checkScript(script); err != nil {
		return "", fmt.Errorf("check the rendered script: %w", err)
	}
	return script, nil
}

// fill executes a template. A template may loop forever: after the limit fill returns an error and leaves the goroutine running, as nothing
// can stop it.
func fill(t *template.Template, fields any, limit time.Duration) (string, error) {
	var out scriptWriter
	ended := make(chan error, 1)
	go func() { ended <- t.Execute(&out, fields) }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-ended:
		if err != nil {
			return "", err
		}
		return out.text.String(), nil
	case <-timer.C:
		return "", fmt.Errorf("it takes longer than %v; check its loops", limit)
	}
}

// scriptWriter refuses scripts that are longer than Slurm takes.
type scriptWriter struct{ text strings.Builder }

func (w *scriptWriter) Write(p []byte) (int, error) {
	if len(p) > maxScript-w.text.Len() {
		return 0, fmt.Errorf("the script is longer than %d bytes", maxScript)
	}
	return w.text.Write(p)
}

// validate checks the numbers of nodes, ranks and cores against each other, and the paths.
func (s Script) validate() error {
	switch {
	case s.Nodes < 1:
		return fmt.Errorf("nodes must be at least 1, got %d", s.Nodes)
	case s.Mode != "agent" && s.Mode != "task":
		return fmt.Errorf("launch.mode %q is neither agent nor task", s.Mode)
	case s.MinNodes < 0 || s.MinNodes > s.Nodes:
		return fmt.Errorf("launch.min_nodes %d is not between 1 and the job's %d nodes", s.MinNodes, s.Nodes)
	case s.LeastNodes < 0 || s.LeastNodes > s.Nodes:
		return fmt.Errorf("the fewest nodes, %d, must be between 1 and the job's %d nodes", s.LeastNodes, s.Nodes)
	case s.isRange() && s.Mode == "task":
		return errors.New(`a range of nodes needs launch.mode = "agent"`)
	case len(s.Components) >= MaxHetSize:
		return fmt.Errorf("a heterogeneous job has at most %d components", MaxHetSize)
	case len(s.Components) > 0 && (s.isRange() || s.MinNodes > 0 || s.isArray()):
		return errors.New("a heterogeneous job cannot have a range of nodes, go on with fewer nodes, or be an array")
	case s.Lead < 0 || s.Grace < 0:
		return errors.New("lead and grace cannot be negative")
	case s.Nproc < 0 || s.CPUsPerRank < 0:
		return errors.New("ranks per node and cores per rank cannot be negative")
	case s.Mode == "task" && s.Nproc == 0:
		return errors.New(`launch.mode = "task" needs launch.nproc_per_node as a number: srun must know how many tasks to start`)
	case s.CPUsPerRank > 0 && s.Nproc == 0:
		return errors.New("slurm.cpus_per_task is per rank, so launch.nproc_per_node must be a number; " +
			"or ask for whole nodes with slurm.exclusive = true")
	case !filepath.IsAbs(s.RunDir) || !filepath.IsAbs(s.WorkDir):
		return fmt.Errorf("run directory %s and workdir %s must be absolute", clip(s.RunDir), clip(s.WorkDir))
	case strings.Contains(s.RunDir, `\`):
		// sbatch(1), "filename pattern": a backslash turns the expansion of %j off, so all
		// jobs would write to one file named %j.
		return fmt.Errorf(`run directory %s: Slurm cannot name output files in a path with a backslash; set run_dir to another place`,
			clip(s.RunDir))
	}
	for i := range s.Components {
		if err := s.component(i).validate(); err != nil {
			return fmt.Errorf("component %d: %w", i+1, err)
		}
	}
	return nil
}

// checkScript refuses scripts that sbatch would refuse or truncate. Its errors are for the author of the template or
// of [setup] script.
func checkScript(text string) error {
	switch {
	case !strings.HasPrefix(text, "#!"):
		return errors.New(`its first line must begin with "#!"`)
	case strings.ContainsRune(text, 0):
		return errors.New("it holds a NUL byte")
	case strings.Contains(text, "\r\n"):
		return errors.New(`it has DOS line ends (\r\n), which sbatch refuses`)
	}
	return nil
}

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
	Elastic    bool
	Tasks      bool
	Het        bool
}

func (s Script) fields() (scriptFields, error) {
	err := errors.Join(s.validate(), s.Setup.Validate())
	if err == nil && s.Mode == "agent" {
		err = CheckAgentWords(slices.Concat(s.Options.Extra, s.Words))
	}
	if err != nil {
		return scriptFields{}, err
	}
	directives, err := s.directives()
	if err != nil {
		return scriptFields{}, err
	}
	var modules []string
	for _, module := range s.Setup.Modules {
		modules = append(modules, ShellQuote(module))
	}
	conda := ""
	if s.Setup.Conda != "" {
		conda = ShellQuote(s.Setup.Conda)
	}
	return scriptFields{
		Directives: directives,
		Name:       ShellQuote(s.Name),
		RunDir:     ShellQuote(s.RunDir),
		Program:    ShellQuote(s.program()),
		Modules:    modules,
		Venv:       s.Setup.venvWord(),
		Conda:      conda,
		Lines:      s.Setup.Script,
		Srun:       s.srun(),
		Elastic:    s.MinNodes > 0,
		Tasks:      s.Mode == "task",
		Het:        len(s.Components) > 0,
	}, nil
}

// Setup is the [setup] table without env, which travels in the spec file.
type Setup struct {
	Modules []string `json:"modules,omitempty"`
	Venv    string   `json:"venv,omitempty"`
	Conda   string   `json:"conda,omitempty"`
	Script  []string `json:"script,omitempty"` // the user's own shell lines, verbatim by intention
}

// Validate reports what cannot be written into a batch script. The error joins one for each fault; each
// begins with its key ("setup.venv").
func (s Setup) Validate() error {
	var errs []error
	for _, module := range s.Modules {
		errs = append(errs, checkSetup("setup.modules", module, true))
	}
	if s.Venv != "" {
		errs = append(errs, checkSetup("setup.venv", s.Venv, false))
		if rest, found := strings.CutPrefix(s.Venv, "~"); found && rest != "" && rest[0] != '/' {
			errs = append(errs, errors.New("setup.venv: write the home folder of another user as an absolute path"))
		}
	}
	if s.Conda != "" {
		errs = append(errs, checkSetup("setup.conda", s.Conda, true))
	}
	for i, line := range s.Script {
		if strings.Contains(line+"\n", "\r\n") {
			errs = append(errs,
				fmt.Errorf(`setup.script: item %d has DOS line ends (\r\n), which sbatch refuses: save the job file with Unix ones`, i+1))
		}
	}
	return errors.Join(errs...)
}

// checkSetup checks a text that becomes one word of the script. If isName, the word is an argument of a command,
// which would read it as an option if it began with a dash.
func checkSetup(key, text string, isName bool) error {
	if err := checkWord(text); err != nil {
		return fmt.Errorf("%s: %s: %w", key, clip(text), err)
	}
	if isName && (strings.TrimSpace(text) == "" || strings.HasPrefix(text, "-")) {
		return fmt.Errorf("%s: %s: it must be a name that is not empty and does not begin with a dash", key, clip(text))
	}
	return nil
}

// venvWord returns the activation script of the venv as a shell word, or "" if there is no venv. A leading ~
// is the home folder of the user on the node; homes of other users ("~ann") are not supported.
func (s Setup) venvWord() string {
	if s.Venv == "" {
		return ""
	}
	script := strings.TrimRight(s.Venv, "/") + "/bin/activate"
	if rest, found := strings.CutPrefix(script, "~"); found {
		return `"$HOME"` + ShellQuote(rest)
	}
	if !filepath.IsAbs(script) {
		script = "./" + script // otherwise "." would look it up in PATH, or read it as an option
	}
	return ShellQuote(script)
}
