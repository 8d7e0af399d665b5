package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/usage"
)

func newCheckCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "validate a job file: every fault at once, with line and column",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch check job.toml"),
		Flags: []cli.Flag{
			setFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "slurm", Usage: "ask Slurm for the limits of the job's partition, too"},
		},
		Action: withArg("job file", func(c *cli.Context, path string) error {
			return runCheck(c.Context, e, path, c.StringSlice("set"), c.Bool("json"), c.Bool("slurm"))
		}),
	}
}

func runCheck(ctx context.Context, e *env, path string, sets []string, asJSON, asksSlurm bool) error {
	text, err := readJob(ctx, e.abs(path))
	if err != nil {
		return err
	}
	remarks := []func(*jobfile.Job) []jobfile.Remark{(*jobfile.Job).DataRemarks, e.fileRemarks()}
	var unasked error
	if asksSlurm {
		remarks = append(remarks, e.limitRemarks(ctx, nil, &unasked))
	}
	job, warnings, err := parseJob(e, e.abs(path), text, sets, remarks...)
	if unasked != nil && ctx.Err() == nil {
		fmt.Fprintf(e.Err, "ddpbatch: the limits of the partition are not checked: %v\n", unasked)
	}
	if err == nil {
		err = checkTemplate(ctx, path, job)
	}
	if err == nil {
		var more []jobfile.Fault
		if _, more, err = selectCode(ctx, e, job, path); errors.As(err, new(*usage.Error)) {
			err = jobfile.Faults{{File: filepath.Base(path), Key: "code.snapshot", Message: err.Error()}}
		}
		warnings = append(warnings, more...)
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

// checkTemplate makes sure that the job's script template makes a script.
func checkTemplate(ctx context.Context, path string, job *jobfile.Job) error {
	_, err := readTemplate(ctx, job)
	if ctx.Err() != nil || err == nil {
		return err
	}
	return jobfile.Faults{{File: filepath.Base(path), Key: "script_template", Message: "script_template: " + err.Error()}}
}

func checkJSON(e *env, warnings []jobfile.Fault, err error) error {
	faults, ok := errors.AsType[jobfile.Faults](err)
	if err != nil && !ok {
		return err
	}
	list := func(faults []jobfile.Fault) []jobfile.Fault { return append([]jobfile.Fault{}, faults...) } // never null
	if perr := printJSON(e, map[string]any{"ok": err == nil, "faults": list(faults), "warnings": list(warnings)}); perr != nil || err == nil {
		return perr
	}
	return &exit.Error{Code: exit.Usage}
}

// warn prints what a job file asks for and this version does not act on.
func warn(e *env, warnings []jobfile.Fault) {
	for _, w := range warnings {
		fmt.Fprintf(e.Err, "%s (warning)\n", w)
	}
}
