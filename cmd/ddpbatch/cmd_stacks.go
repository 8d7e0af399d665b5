package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/text"
)

func newStacksCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "stacks",
		Usage:       "show the stacks of all ranks of a running job, equal ones together",
		ArgsUsage:   "JOB",
		Description: example("ddpbatch stacks 123"),
		Flags:       []cli.Flag{runDirFlag(), jsonFlag()},
		Action: withArg("job id or run directory", func(c *cli.Context, name string) error {
			job, err := openLive(c, e, name)
			if err != nil {
				return err
			}
			s, err := job.Stacks(c.Context, e.Now(), e.Err)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = printJSON(e, s)
			} else {
				s.Print(e.Out)
			}
			if n := len(s.Missing); err == nil && n > 0 {
				err = &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s of job %s did not answer", text.Plural(n, "rank"), s.Job)}
			}
			return err
		}),
	}
}
