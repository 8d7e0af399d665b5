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

// SelectCode decides what [code] copies, and sets CodeDir, the folder of the copy in which ranks run. It returns nil if the job does not
// ask for a copy. git is the path of git, or "" if it is not installed. The warnings name code that ranks would run from outside the copy.
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

// maxLive bounds the number of warnings about the elements of a sweep.
const maxLive = 10

// liveCodeOfAll calls liveCode for the job or, if a sweep changes what liveCode checks, for each element.
func (j *Job) liveCodeOfAll(selection *snapshot.Selection, environ []string) (warnings []string) {
	if j.Sweep == nil || !j.Sweep.sets("launch.command") && !j.Sweep.sets("setup.env.PYTHONPATH") {
		return j.liveCode(selection, environ)
	}
	seen := map[string]bool{}
	for index := range j.Sweep.Len() {
		element, err := j.Element(index)
		if err != nil {
			continue // Parse has checked that each can be made
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

// RanksDir returns the folder in which the ranks of the run in runDir run: a folder in the run's copy of the code, if it has one, or else
// workdir. Paths in the job file start at workdir in both cases.
func (j *Job) RanksDir(runDir string) string {
	if j.CodeDir == "" {
		return j.WorkDir
	}
	return filepath.Join(runDir, rundir.CodeName, j.CodeDir)
}

// CheckCode returns an error if the ranks of the run are to run in a copy of the code that does not exist.
func (j *Job) CheckCode(runDir string) error {
	dir := j.RanksDir(runDir)
	if j.CodeDir == "" || vfs.IsDir(dir) {
		return nil
	}
	return &usage.Error{
		Message: fmt.Sprintf("the folder %s of the run's copy of the code no longer exists", dir), Hint: "submit the job again",
	}
}

// SourceVariable names the variable that tells workers that run in a copy of the code the folder from which it was copied, which may hold
// data.
const SourceVariable = "DDPBATCH_SOURCE_DIR"

// WorkerEnv returns the variables that the job sets for its workers: [setup] env and, if they run in a copy, SourceVariable.
func (j *Job) WorkerEnv() map[string]string {
	if j.CodeDir == "" {
		return j.Env
	}
	env := map[string]string{SourceVariable: j.WorkDir}
	maps.Copy(env, j.Env)
	return env
}

// setup returns [setup] for the batch script, with whole paths of environments. Relative ones start at workdir, which is not the folder in
// which the script begins if ranks run in a copy of the code; and a message about one that does not exist shows where it was looked for.
func (j *Job) setup() slurm.Setup {
	setup := j.Setup
	setup.Venv = j.environmentPath(setup.Venv)
	if strings.Contains(setup.Conda, "/") && !strings.HasPrefix(setup.Conda, "$") { // otherwise it is a name, or conda expands it
		setup.Conda = j.environmentPath(setup.Conda)
	}
	return setup
}

// environmentPath returns the whole path of an environment. It keeps ".." as a shell in workdir does: behind a symbolic link, only the file
// system knows where that leads.
func (j *Job) environmentPath(path string) string {
	switch {
	case path == "" || strings.HasPrefix(path, "~"):
		return path
	case !filepath.IsAbs(path) && slices.Contains(strings.Split(path, "/"), ".."):
		return j.WorkDir + "/" + path
	}
	return j.resolve(path)
}

// KeepCode makes the job of a resume use the copy of the code of the run's previous job. sets are the overrides of the resume.
func (j *Job) KeepCode(before *Job, sets []string) error {
	const hint = "a run goes on with the code that it was submitted with; to run other code, submit the job again"
	for _, set := range sets {
		if key := SetKey(set); key == "code" || strings.HasPrefix(key, "code.") {
			return &usage.Error{Message: "--set " + key + ": [code] says what submit copies", Hint: hint}
		}
	}
	if before.CodeDir != "" && j.WorkDir != before.WorkDir {
		return &usage.Error{
			Message: fmt.Sprintf("workdir is %s, but the run has a copy of the code in %s", j.WorkDir, before.WorkDir), Hint: hint,
		}
	}
	j.Code, j.CodeDir = before.Code, before.CodeDir
	return nil
}

// liveCode returns warnings about code that ranks would run from the source tree, and not from its copy.
func (j *Job) liveCode(selection *snapshot.Selection, environ []string) (warnings []string) {
	for i, word := range j.Launch.Command {
		if !filepath.IsAbs(word) {
			continue
		}
		if rel, ok := selection.Has(word); ok {
			warnings = append(warnings,
				fmt.Sprintf("item %d of launch.command, %s, is a file of the source tree, not of its copy: "+
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
		return warnings // this folder is in the copy, and is searched first
	}
	if !own {
		path = variables["PYTHONPATH"]
	}
	live := selection.PathImports(path)
	environment := j.environmentPath(j.Setup.Venv)
	switch {
	case strings.HasPrefix(environment, "~/"):
		environment, _ = absolute(environment, j.WorkDir) // "" if the home folder is unknown
	case environment == "" && strings.Contains(j.Setup.Conda, "/"):
		environment = j.environmentPath(j.Setup.Conda)
	case environment == "" && j.Setup.Conda == "": // jobs inherit what is activated here
		environment = variables["VIRTUAL_ENV"]
	}
	if filepath.IsAbs(environment) {
		live = slices.Concat(live, selection.LiveImports(environment))
	}
	if len(live) > 0 {
		warnings = append(warnings,
			fmt.Sprintf("Python imports from the source tree, not from its copy: %s; relative folders in PYTHONPATH are in "+
				"the copy, and come first: "+
				"[setup] env = { PYTHONPATH = %s }", words.Few(live, 3), redact.Quoted(live[0].InTree, redact.Shown)))
	}
	return warnings
}
