package main

import (
	"path/filepath"

	"github.com/urfave/cli/v2"
)

func templateFlag() cli.Flag {
	return &cli.StringFlag{Name: "script-template", Usage: "render this `FILE` instead of the built-in batch script"}
}

func newRenderCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "render",
		Usage:       "print the sbatch script of a job; nothing is submitted or written",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch render job.toml --set slurm.nodes=4"),
		Flags:       []cli.Flag{setFlag(), templateFlag()},
		Action: withArg("job file", func(c *cli.Context, path string) error {
			job, _, err := loadJob(c.Context, e, e.abs(path), c.StringSlice("set"))
			if err != nil {
				return err
			}
			template, err := readTemplate(c.Context, e, c.String("script-template"))
			if err != nil {
				return err
			}
			// submit makes the directory and knows its real name
			text, err := renderScript(job, filepath.Join(job.RunDir, job.Name+"-YYYYmmdd-HHMMSS-xxxxxxxx"), template, nil)
			if err != nil {
				return err
			}
			printScript(e, text)
			return nil
		}),
	}
}
