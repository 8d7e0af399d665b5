package main

import (
	"context"
	"fmt"
	"path/filepath"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/usage"
	"ddpbatch/templates"
)

// newRun makes the run directory of a job: the job file as it was read, the
// resolved spec and a copy of this program.
func newRun(e *env, kind string, job *jobfile.Job, source string, text []byte, sets []string) (*rundir.Dir, error) {
	spec, err := job.Spec(rundir.Spec{Kind: kind, Version: version, Source: source, Sets: sets})
	if err != nil {
		return nil, err
	}
	binary, err := e.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	run, err := rundir.Create(rundir.CreateConfig{
		Parent: job.RunDir, Spec: spec, JobFile: text, Binary: binary, Now: e.Now(),
	})
	if err == nil {
		warnExposed(e, run)
	}
	return run, err
}

// checkOwn makes sure that a run that is to be acted on is the caller's.
func checkOwn(e *env, run *rundir.Dir) error {
	err := run.CheckOwn()
	if err == nil {
		warnExposed(e, run)
	}
	return err
}

// warnExposed says where the path to a run can be changed by others. Projects are shared so, and it is not for this command to end that.
func warnExposed(e *env, run *rundir.Dir) {
	if path := run.ExposedAbove(); path != "" {
		e.log().Warn("other users can change this folder, and put a run of theirs in the place of this one; "+
			"set run_dir to a place below a folder of your own", "folder", path)
	}
}

// readJob reads the text of a job file.
func readJob(ctx context.Context, path string) ([]byte, error) {
	text, err := jobfile.ReadText(ctx, path)
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		return nil, &usage.Error{Message: fmt.Sprintf("read the job file: %v", err), Hint: `"ddpbatch init" writes one to start from`}
	}
	return text, nil
}

// loadJob reads a job file for a command that will act on it; warnings are printed.
func loadJob(ctx context.Context, e *env, path string, sets []string) (*jobfile.Job, []byte, error) {
	text, err := readJob(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	job, warnings, err := jobfile.Parse(filepath.Base(path), filepath.Dir(path), text, sets)
	warn(e, warnings)
	return job, text, err
}

// renderScript renders a job's batch script for a run directory. words are the options that sbatch gets on its command line.
func renderScript(job *jobfile.Job, runDir, template string, words []string) (string, error) {
	if template == "" {
		template = templates.Batch
	}
	script := job.BatchScript(runDir)
	script.Words = words
	text, err := script.Render(template)
	if err != nil {
		return "", &usage.Error{Message: fmt.Sprintf("render the batch script: %v", err)}
	}
	return text, nil
}

// printScript prints a batch script, with the values blanked that may be secret.
func printScript(e *env, script string) {
	shown := redact.Text(script)
	fmt.Fprint(e.Out, shown)
	if shown != script {
		fmt.Fprintf(e.Err, "ddpbatch: %s stands for values whose names hold KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL; "+
			"what submit hands to sbatch has them\n", redact.Blank)
	}
}

// readTemplate reads a user's own script template; "" is ours.
func readTemplate(ctx context.Context, e *env, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := jobfile.ReadText(ctx, e.abs(path))
	if ctx.Err() != nil {
		return "", err
	}
	if err != nil {
		return "", usage.Errorf("read the script template: %v", err)
	}
	if len(text) == 0 {
		return "", usage.Errorf("the script template %s is empty", path)
	}
	return string(text), nil
}
