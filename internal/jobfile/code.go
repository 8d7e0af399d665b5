package jobfile

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/snapshot"
	words "ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
	"ddpbatch/slurm"
)

// SelectCode decides what [code] copies, and notes in the job where its ranks run then. It returns nil where no copy is asked for. git is
// the program; "": it is not here. The warnings are about what ranks would run beside the copy.
func (j *Job) SelectCode(ctx context.Context, git string, environ []string) (*snapshot.Selection, []string, error) {
	if !j.Code.On() {
		return nil, nil, nil
	}
	selection, err := snapshot.Request{
		Config: j.Code, WorkDir: j.WorkDir, RunDir: j.RunDir, GitPath: git, Environ: environ,
	}.Select(ctx)
	if err != nil {
		return nil, nil, err
	}
	j.CodeDir = selection.Dir
	return selection, j.liveCodeOfAll(selection, environ), nil
}

// maxLive bounds the warnings about the elements of a sweep: each tells of another, and more of them help nobody.
const maxLive = 10

// liveCodeOfAll is liveCode for the job, and of a sweep that changes what it looks at for each element.
func (j *Job) liveCodeOfAll(selection *snapshot.Selection, environ []string) (warnings []string) {
	if j.Sweep == nil || !j.Sweep.sets("launch.command") && !j.Sweep.sets("setup.env.PYTHONPATH") {
		return j.liveCode(selection, environ)
	}
	seen := map[string]bool{}
	for index := range j.Sweep.Len() {
		element, err := j.Element(index)
		if err != nil {
			continue // Parse has made each of them
		}
		looked := fmt.Sprintf("%q %q", element.Launch.Command, element.Env["PYTHONPATH"])
		if seen[looked] {
			continue
		}
		seen[looked] = true
		for _, warning := range element.liveCode(selection, environ) {
			if !slices.Contains(warnings, warning) && len(warnings) < maxLive {
				warnings = append(warnings, warning)
			}
		}
		if len(warnings) == maxLive {
			break
		}
	}
	return warnings
}

// RanksDir is where the ranks of a run run, whose directory is given: in the run's copy of the code, where it has one, or else in workdir.
// Paths of the job file start from workdir in any case.
func (j *Job) RanksDir(runDir string) string {
	if j.CodeDir == "" {
		return j.WorkDir
	}
	return filepath.Join(runDir, rundir.CodeName, j.CodeDir)
}

// CheckCode makes sure that the copy is there in which a run's ranks are to run, if they are to run in one.
func (j *Job) CheckCode(runDir string) error {
	dir := j.RanksDir(runDir)
	if j.CodeDir == "" || vfs.IsDir(dir) {
		return nil
	}
	return &usage.Error{Message: fmt.Sprintf("the run's copy of the code has no folder %s any more", dir), Hint: "submit the job anew"}
}

// SourceVariable is the variable by which workers that run in a copy find the folder that it was made from, where data may be.
const SourceVariable = "DDPBATCH_SOURCE_DIR"

// WorkerEnv is what a job's workers have of it in their environment: [setup] env, and where they run in a copy SourceVariable.
func (j *Job) WorkerEnv() map[string]string {
	if j.CodeDir == "" {
		return j.Env
	}
	env := map[string]string{SourceVariable: j.WorkDir}
	maps.Copy(env, j.Env)
	return env
}

// setup is [setup] for the batch script, which begins where ranks run. Environments that are named by relative paths lie in workdir.
func (j *Job) setup() slurm.Setup {
	setup := j.Setup
	if j.CodeDir != "" {
		setup.Venv = j.environmentPath(setup.Venv)
		if strings.Contains(setup.Conda, "/") { // else it is a name
			setup.Conda = j.environmentPath(setup.Conda)
		}
	}
	return setup
}

func (j *Job) environmentPath(path string) string {
	if path == "" || strings.HasPrefix(path, "~") {
		return path
	}
	return j.resolve(path)
}

// KeepCode gives the job of a resume, which sets were laid over, the copy of the code that the run before had.
func (j *Job) KeepCode(before *Job, sets []string) error {
	const hint = "a run goes on with the code that it was submitted with; to run other code, submit the job anew"
	for _, set := range sets {
		if key := SetKey(set); key == "code" || strings.HasPrefix(key, "code.") {
			return &usage.Error{Message: "--set " + key + ": [code] says what submit copies", Hint: hint}
		}
	}
	if before.CodeDir != "" && j.WorkDir != before.WorkDir {
		return &usage.Error{
			Message: fmt.Sprintf("workdir is %s, and the run has a copy of the code in %s", j.WorkDir, before.WorkDir), Hint: hint,
		}
	}
	j.Code, j.CodeDir = before.Code, before.CodeDir
	return nil
}

// liveCode says what of the tree ranks would run themselves, and not its copy.
func (j *Job) liveCode(selection *snapshot.Selection, environ []string) (warnings []string) {
	for i, word := range j.Launch.Command {
		if !filepath.IsAbs(word) {
			continue
		}
		if rel, ok := selection.Has(word); ok {
			warnings = append(warnings,
				fmt.Sprintf("item %d of launch.command, %s, is a file of the tree itself, and not of its copy: "+
					"write %s, relative to workdir",
					i+1, redact.Quoted(word, redact.Shown), redact.Quoted(rel, redact.Shown)))
		}
	}
	variables := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		variables[name] = value
	}
	path, own := j.Env["PYTHONPATH"]
	if own && path != "" && !filepath.IsAbs(filepath.SplitList(path)[0]) {
		return warnings // which comes first, and is the copy's
	}
	if !own {
		path = variables["PYTHONPATH"]
	}
	live := selection.PathImports(path)
	environment := j.environmentPath(j.Setup.Venv)
	switch {
	case strings.HasPrefix(environment, "~/"):
		environment, _ = absolute(environment, j.WorkDir) // "" where the home is not known
	case environment == "" && strings.Contains(j.Setup.Conda, "/"):
		environment = j.resolve(j.Setup.Conda)
	case environment == "" && j.Setup.Conda == "": // jobs inherit what is activated here
		environment = variables["VIRTUAL_ENV"]
	}
	if filepath.IsAbs(environment) {
		live = slices.Concat(live, selection.LiveImports(environment))
	}
	if len(live) > 0 {
		warnings = append(warnings,
			fmt.Sprintf("Python imports from the tree itself, and not from its copy: %s; relative folders of PYTHONPATH are "+
				"the copy's, and come first: "+
				"[setup] env = { PYTHONPATH = %s }", words.Few(live, 3), redact.Quoted(live[0].InTree, redact.Shown)))
	}
	return warnings
}
