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

// maxScript is the longest script that Slurm takes where a site does not say otherwise
// (max_script_size in slurm.conf(5)).
const maxScript = 4 << 20

// maxFill is how long a template may take, which is a matter of milliseconds.
const maxFill = 10 * time.Second

// Script is what a batch script is rendered from. Of Options, nodes and cpus-per-task are left
// aside: Nodes and CPUsPerRank say the same, and are what counts.
type Script struct {
	Name        string // job name
	RunDir      string // absolute
	WorkDir     string // absolute
	Options     Options
	Words       []string // further options of sbatch, which stand on its command line and not in the script
	Nodes       int
	LeastNodes  int    // the fewest nodes that Slurm may start the job on, instead of Nodes; 0: all
	Mode        string // "agent": one task a node | "task": one task a rank
	Nproc       int    // ranks a node; the largest where nodes differ; 0: only the node knows
	CPUsPerRank int    // 0: not asked
	MinNodes    int    // the fewest nodes that the step goes on with where others are lost; 0: all
	Components  []Component
	Setup       Setup

	Requeue bool          // the job is one that Slurm may start again, and is warned before its end
	Chain   bool          // another job goes on after the time limit, so that the job is warned, too
	Lead    time.Duration // how long before its end; in whole seconds
	Grace   time.Duration // how long workers have between TERM and KILL
}

// Component is a further component of a heterogeneous job, whose first one is what the script itself asks for. Its fields mean what those
// of [Script] do, for its own nodes. Of Options only the list counts.
type Component struct {
	Options     Options
	Nodes       int
	Nproc       int
	CPUsPerRank int
}

// Render fills the template (templates.Batch or a user's own), a text/template whose fields are
//
//	.Directives  options of sbatch, each to stand after "#SBATCH " on a line of its own
//	.Name        the job's name
//	.RunDir      the run directory
//	.Program     the ddpbatch binary in it
//	.Modules     names to "module load"
//	.Venv        the activation script of a Python venv; empty where none is asked for
//	.Conda       the name or path of a conda environment; empty where none is asked for
//	.Lines       the user's own shell lines
//	.Srun        srun's options, as one text; it may hold the shell's variable ddpbatch_mpi. Of a heterogeneous job they are those of
//	             each component, with the program "run" behind all but the last
//	.Elastic     whether the run may go on with fewer nodes
//	.Tasks       whether each rank is a task of srun's
//	.Het         whether the job is a heterogeneous one
//
// All but .Lines are quoted already: .Directives for Slurm's reader, the rest as words
// of a shell. No template can therefore turn a name, a path or a value into shell text;
// only .Lines is shell text, because it is meant to be. Values that cannot be
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

// fill executes a template, which may have loops without an end: one that still runs at the limit is left alone, as nothing can stop it.
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
		return "", fmt.Errorf("it takes longer than %v; look for a loop in it", limit)
	}
}

// scriptWriter takes no more than Slurm does.
type scriptWriter struct{ text strings.Builder }

func (w *scriptWriter) Write(p []byte) (int, error) {
	if len(p) > maxScript-w.text.Len() {
		return 0, fmt.Errorf("the script is longer than %d bytes", maxScript)
	}
	return w.text.Write(p)
}

// validate checks what no part of the rendering can: that the numbers make a world and the paths
// can be used as such.
func (s Script) validate() error {
	switch {
	case s.Nodes < 1:
		return fmt.Errorf("%d nodes make no job", s.Nodes)
	case s.Mode != "agent" && s.Mode != "task":
		return fmt.Errorf("launch.mode %q is neither agent nor task", s.Mode)
	case s.MinNodes < 0 || s.MinNodes > s.Nodes:
		return fmt.Errorf("launch.min_nodes %d is not between 1 and the job's %d nodes", s.MinNodes, s.Nodes)
	case s.LeastNodes < 0 || s.LeastNodes > s.Nodes:
		return fmt.Errorf("%d nodes at least and %d at most make no range", s.LeastNodes, s.Nodes)
	case s.isRange() && s.Mode == "task":
		return errors.New(`a range of nodes needs launch.mode = "agent"`)
	case len(s.Components) >= MaxHetSize:
		return fmt.Errorf("a heterogeneous job has at most %d components", MaxHetSize)
	case len(s.Components) > 0 && (s.isRange() || s.MinNodes > 0 || s.isArray()):
		return errors.New("a heterogeneous job has no range of nodes, cannot go on with fewer nodes, and is no array")
	case s.Lead < 0 || s.Grace < 0:
		return errors.New("a time cannot be negative")
	case s.Nproc < 0 || s.CPUsPerRank < 0:
		return errors.New("ranks a node and cores a rank cannot be negative")
	case s.Mode == "task" && s.Nproc == 0:
		return errors.New(`launch.mode = "task" needs launch.nproc_per_node as a number: srun must know how many tasks to start`)
	case s.CPUsPerRank > 0 && s.Nproc == 0:
		return errors.New("slurm.cpus_per_task is per rank, so launch.nproc_per_node must be a number; " +
			"or ask for whole nodes with slurm.exclusive = true")
	case !filepath.IsAbs(s.RunDir) || !filepath.IsAbs(s.WorkDir):
		return fmt.Errorf("run directory %s and workdir %s must be absolute", clip(s.RunDir), clip(s.WorkDir))
	case strings.Contains(s.RunDir, `\`):
		// sbatch(1), "filename pattern": a backslash turns the expansion of %j off, so that all
		// jobs would write to one file of that very name.
		return fmt.Errorf(`run directory %s: Slurm cannot name output files where a path holds a backslash; set run_dir to another place`,
			clip(s.RunDir))
	}
	for i := range s.Components {
		if err := s.component(i).validate(); err != nil {
			return fmt.Errorf("component %d: %w", i+1, err)
		}
	}
	return nil
}

// checkScript refuses what sbatch would refuse, or cut short, in the words of the one who can
// mend it: the author of the template or of [setup] script.
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
			errs = append(errs,
				fmt.Errorf(`setup.script: item %d has DOS line ends (\r\n), which sbatch refuses: save the job file with Unix ones`, i+1))
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
