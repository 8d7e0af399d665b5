package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

func newCheckCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "validate a job file: report all faults with line and column",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch check job.toml"),
		Flags: []cli.Flag{
			setFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "slurm", Usage: "also ask Slurm for the limits of the job's partition"},
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
	remarks := []func(*jobfile.Job) []jobfile.Remark{(*jobfile.Job).DataRemarks, (*jobfile.Job).BlankRemarks, e.fileRemarks()}
	var unasked, failed error
	if asksSlurm {
		remarks = append(remarks, e.limitRemarks(ctx, nil, &unasked))
	}
	remarks = append(remarks, templateRemarks(ctx, &failed), codeRemarks(ctx, e, e.abs(path), &failed))
	job, warnings, err := parseJob(e, e.abs(path), text, sets, remarks...)
	if unasked != nil && ctx.Err() == nil {
		fmt.Fprintf(e.Err, "ddpbatch: the limits of the partition are not checked: %v\n", unasked)
	}
	if err == nil {
		err = failed
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

// templateRemarks checks that the job's script template produces a script. If that cannot be determined, *failed says why.
func templateRemarks(ctx context.Context, failed *error) func(*jobfile.Job) []jobfile.Remark {
	const key = "script_template"
	return func(job *jobfile.Job) []jobfile.Remark {
		_, err := readTemplate(ctx, job)
		switch {
		case ctx.Err() != nil:
			*failed = err
		case err != nil:
			return []jobfile.Remark{{Key: key, Message: key + ": " + err.Error(), IsFault: true}}
		}
		return nil
	}
}

// codeRemarks finds what [code] cannot copy, and what would not be used from the copy. If that cannot be determined, *failed says why.
func codeRemarks(ctx context.Context, e *env, path string, failed *error) func(*jobfile.Job) []jobfile.Remark {
	return func(job *jobfile.Job) (found []jobfile.Remark) {
		_, warnings, err := selectCode(ctx, e, job, path)
		switch {
		case errors.As(err, new(*usage.Error)):
			return []jobfile.Remark{{Key: codeKey, Message: err.Error(), IsFault: true}}
		case err != nil:
			*failed = err
		}
		for _, w := range warnings {
			found = append(found, jobfile.Remark{Key: w.Key, Message: w.Message})
		}
		return found
	}
}

func checkJSON(e *env, warnings []jobfile.Fault, err error) error {
	faults, ok := errors.AsType[jobfile.Faults](err)
	if err != nil && !ok {
		return err
	}
	list := func(faults []jobfile.Fault) []jobfile.Fault { return append([]jobfile.Fault{}, faults...) } // never null
	if perr := printJSON(e, map[string]any{"ok": err == nil, "faults": list(faults), "warnings": list(warnings)}); perr != nil ||
		err == nil {
		return perr
	}
	return &exit.Error{Code: exit.Usage}
}

// warn prints warnings about keys of a job file that this version does not use.
func warn(e *env, warnings []jobfile.Fault) {
	for _, w := range warnings {
		fmt.Fprintf(e.Err, "%s (warning)\n", text.CleanLines(w.String()))
	}
}
