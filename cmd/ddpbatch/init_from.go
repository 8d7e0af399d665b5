package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ddpbatch/internal/jobfile"
	words "ddpbatch/internal/text"
	"ddpbatch/internal/translate"
	"ddpbatch/internal/usage"
	"ddpbatch/templates"
)

// writeTranslated writes the job file for a batch script or a command line.
func writeTranslated(ctx context.Context, e *env, dir, from string) error {
	result, err := translated(ctx, e, dir, from)
	if err != nil {
		return err
	}
	result.Text = withoutRunDir(e, result.Text)
	_, warnings, err := jobfile.Parse("job.toml", e.abs(dir), []byte(result.Text), nil)
	if err != nil {
		return &usage.Error{
			Message: fmt.Sprintf("ddpbatch cannot run this job: %v", err),
			Hint:    `"ddpbatch init --list" shows jobs to start from`,
		}
	}
	path, err := writeJobFile(e, dir, result.Text)
	if err != nil {
		return err
	}
	warn(e, warnings)
	sayNext(e, path, templates.Starter{})
	if result.Launch != "" {
		fmt.Fprintf(e.Out, "runs:      %s (line %d)\n", result.Launch, result.LaunchLine)
	}
	if n := result.Untranslated; n > 0 {
		fmt.Fprintf(e.Out, "not translated: %s; see the comments in the file\n", words.Plural(n, "part"))
	}
	if what := result.NotCopied; len(what) > 0 {
		fmt.Fprintf(e.Out, "not copied: %s; see the comments in the file\n", strings.Join(what, ", "))
	}
	return nil
}

// translated makes a job file from a script, if a file of that name exists, or else from a command line.
func translated(ctx context.Context, e *env, dir, from string) (translate.Result, error) {
	options := translate.Options{Source: "a command line", Base: "."}
	if base, err := filepath.Rel(e.abs(dir), e.Dir); err == nil { // where sbatch would be called
		options.Base = base
	}
	info, err := os.Stat(e.abs(from))
	switch {
	case err == nil && info.IsDir():
		return translate.Result{}, usage.Errorf("%s is a folder: name a batch script, or a command line in quotes", e.dir().Named(from))
	case err == nil || !errors.Is(err, fs.ErrNotExist) && !strings.Contains(from, " "):
		text, err := jobfile.ReadText(ctx, e.abs(from))
		if ctx.Err() != nil {
			return translate.Result{}, err
		}
		if err != nil {
			return translate.Result{}, usage.Errorf("read the script: %v", err)
		}
		options.Source, options.Name = filepath.Base(from), filepath.Base(from)
		result, err := translate.Script(string(text), options)
		return result, refusal(e.dir().Named(from), err)
	case !strings.ContainsAny(strings.TrimSpace(from), " \t"):
		return translate.Result{}, &usage.Error{
			Message: fmt.Sprintf("%s does not exist", e.dir().Named(from)),
			Hint:    `name a batch script, or a command line in quotes, such as "torchrun --nproc-per-node 8 train.py"`,
		}
	}
	result, err := translate.Command(from, options)
	return result, refusal("the command line", err)
}

// refusal returns the error for a script or command line from which no job file can be made.
func refusal(what string, err error) error {
	if err == nil {
		return nil
	}
	return usage.Errorf("%s: %v", what, err)
}
