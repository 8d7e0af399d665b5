package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
)

const templateFlagName = "script-template"

func templateFlag() cli.Flag {
	return &cli.StringFlag{Name: templateFlagName, Usage: "render this `FILE` instead of the built-in batch script"}
}

func newRenderCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "render",
		Usage:       "print the sbatch script of a job without submitting or writing anything",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch render job.toml --set slurm.nodes=4"),
		Flags:       []cli.Flag{setFlag(), templateFlag(), jsonFlag()},
		Action: withArg("job file", func(c *cli.Context, path string) error {
			return e.replying(c.Bool("json"), func(e *env) error {
				return runRender(c.Context, e, e.abs(path), withTemplate(e, c, c.StringSlice("set")))
			})
		}),
	}
}

func runRender(ctx context.Context, e *env, path string, sets []string) error {
	job, _, err := loadJob(ctx, e, path, sets)
	if err != nil {
		return err
	}
	_, warnings, err := selectCode(ctx, e, job, path)
	warn(e, warnings)
	if err != nil {
		return err
	}
	template, err := readTemplate(ctx, job)
	if err != nil {
		return err
	}
	text, err := renderScript(job, unnamedRun(job), template, nil)
	if err != nil {
		return err
	}
	shown := blankScript(e, text)
	if e.reply == nil {
		_, err := io.WriteString(e.Out, shown)
		return err
	}
	return printJSON(e, scriptReply{jobReply: unsubmittedReply(e, job, sets, nil), Script: shown})
}

// unsubmittedReply returns the reply for a job that is not submitted.
func unsubmittedReply(e *env, job *jobfile.Job, sets, words []string) jobReply {
	return jobReply{[]string{}, job.Name, unnamedRun(job), requestOf(job, sets, words), e.reply.warnings(), ""}
}
