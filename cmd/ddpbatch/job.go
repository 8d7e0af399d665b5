package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/internal/vfs"
	"ddpbatch/templates"
)

func plural(n int, noun string) string { return text.Plural(n, noun) }

// missingData names the first file that the built-in trainer would look for in vain.
func missingData(job *jobfile.Job) error {
	if !job.Builtin() {
		return nil
	}
	for _, f := range job.Train.Files() {
		path := f.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(job.WorkDir, path)
		}
		if _, err := os.Stat(path); err != nil {
			return &usage.Error{
				Message: fmt.Sprintf("train.%s: %v", f.Key, err),
				Hint:    "correct the path in the job file (relative paths start at workdir, " + job.WorkDir + ")",
			}
		}
	}
	if file := job.ExportPath(); file != "" && !isDir(filepath.Dir(file)) {
		return &usage.Error{
			Message: fmt.Sprintf("train.export: the folder of %s is not there", file),
			Hint:    "make it first, or name another",
		}
	}
	return nil
}

func jobOf(d *rundir.Dir) (*jobfile.Job, error) { return jobfile.OfRun(d) }

// newRun makes the run directory of a job: the job file as it was read, the
// resolved spec and a copy of this program.
func newRun(e *env, kind string, job *jobfile.Job, source string, text []byte, sets []string) (*rundir.Dir, error) {
	spec, err := specOf(kind, job, source, sets)
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

func specOf(kind string, job *jobfile.Job, source string, sets []string) (rundir.Spec, error) {
	resolved, err := json.Marshal(job)
	if err != nil {
		return rundir.Spec{}, fmt.Errorf("write the job as JSON: %w", err)
	}
	return rundir.Spec{
		Schema: 1, Name: job.Name, Kind: kind, Version: version, Source: source, Sets: sets,
		WorkDir: job.WorkDir, Nodes: job.Nodes(), Job: resolved,
	}, nil
}

// readJob reads the text of a job file.
func readJob(ctx context.Context, path string) ([]byte, error) {
	text, err := readText(ctx, path)
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		return nil, &usage.Error{Message: fmt.Sprintf("read the job file: %v", err), Hint: `"ddpbatch init" writes one to start from`}
	}
	return text, nil
}

// maxText is more than any job file or script template holds.
const maxText = 1 << 20

// pipePatience is how long readText waits for the writer of a pipe to close it.
const pipePatience = 30 * time.Second

// readText reads a file, or a pipe, that a person wrote.
func readText(ctx context.Context, path string) ([]byte, error) {
	return readTextWithin(ctx, path, pipePatience)
}

func readTextWithin(ctx context.Context, path string, patience time.Duration) ([]byte, error) {
	f, isPipe, err := openText(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if isPipe { // which may stay open for ever
		if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
	}
	defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })() // a plain file has none, and is read to its end
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	switch {
	case ctx.Err() != nil: // whatever was read is no use to anybody
		err = fmt.Errorf("%w while %s was read", context.Cause(ctx), path)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%s is a pipe that its writer has not closed after %v; write the text to a file first", path, patience)
	case err == nil && len(text) > maxText:
		err = fmt.Errorf("%s is longer than %d bytes", path, maxText)
	case err == nil && len(text) == 0 && isPipe:
		err = fmt.Errorf("%s is a pipe, and nobody has written to it", path)
	}
	return text, err
}

// openText opens a file, or a pipe that somebody writes to: a shell's <(...), say. A pipe without a writer is not waited for. It is opened
// once only, as whoever waits for a reader must not lose the first one.
func openText(path string) (f *os.File, isPipe bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	if isPipe = info.Mode()&fs.ModeNamedPipe != 0; isPipe {
		f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	} else {
		f, _, err = vfs.OpenRegular(path)
	}
	return f, isPipe, err
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
	text, err := readText(ctx, e.abs(path))
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
