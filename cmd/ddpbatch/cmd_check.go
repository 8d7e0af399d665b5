package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
)

func newCheckCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "validate a job file: every fault at once, with line and column",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch check job.toml"),
		Flags:       []cli.Flag{setFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			path, err := oneArg(c, "job file")
			if err != nil {
				return err
			}
			return runCheck(c.Context, e, path, c.StringSlice("set"), c.Bool("json"))
		},
	}
}

func runCheck(ctx context.Context, e *env, path string, sets []string, asJSON bool) error {
	text, err := readJob(ctx, e.abs(path))
	if err != nil {
		return err
	}
	job, warnings, err := jobfile.Parse(filepath.Base(path), filepath.Dir(e.abs(path)), text, sets)
	if err == nil {
		if missing := job.CheckFiles(); missing != nil {
			warnings = append(warnings, jobfile.Fault{File: filepath.Base(path), Message: missing.Error()})
		}
	}
	if asJSON {
		return checkJSON(e, warnings, err)
	}
	warn(e, warnings)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Out, "%s: ok: %s\n", path, job.Summary())
	return nil
}

func checkJSON(e *env, warnings []jobfile.Fault, err error) error {
	type row struct {
		File    string `json:"file"`
		Line    int    `json:"line"`
		Column  int    `json:"column"`
		Key     string `json:"key"`
		Message string `json:"message"`
	}
	rows := func(faults []jobfile.Fault) []row {
		out := []row{}
		for _, f := range faults {
			out = append(out, row{f.File, f.Line, f.Column, f.Key, f.Message})
		}
		return out
	}
	var faults jobfile.Faults
	if err != nil && !errors.As(err, &faults) {
		return err
	}
	if perr := printJSON(e, map[string]any{"ok": err == nil, "faults": rows(faults), "warnings": rows(warnings)}); perr != nil {
		return perr
	}
	if err != nil {
		return &exit.Error{Code: exit.Usage}
	}
	return nil
}

// warn prints what a job file asks for and this version does not act on.
func warn(e *env, warnings []jobfile.Fault) {
	for _, w := range warnings {
		fmt.Fprintf(e.Err, "%s (warning)\n", w)
	}
}
