package main

import "github.com/urfave/cli/v2"

const templateFlagName = "script-template"

func templateFlag() cli.Flag {
	return &cli.StringFlag{Name: templateFlagName, Usage: "render this `FILE` instead of the built-in batch script"}
}

func newRenderCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "render",
		Usage:       "print the sbatch script of a job; nothing is submitted or written",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch render job.toml --set slurm.nodes=4"),
		Flags:       []cli.Flag{setFlag(), templateFlag()},
		Action: withArg("job file", func(c *cli.Context, path string) error {
			job, _, err := loadJob(c.Context, e, e.abs(path), withTemplate(e, c, c.StringSlice("set")))
			if err != nil {
				return err
			}
			_, warnings, err := selectCode(c.Context, e, job, path)
			warn(e, warnings)
			if err != nil {
				return err
			}
			template, err := readTemplate(c.Context, job)
			if err != nil {
				return err
			}
			text, err := renderScript(job, unnamedRun(job), template, nil)
			if err != nil {
				return err
			}
			printScript(e, text)
			return nil
		}),
	}
}
