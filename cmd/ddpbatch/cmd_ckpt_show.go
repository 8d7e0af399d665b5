package main

import (
	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/inspect"
)

func newCkptLsCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "ls", Usage: "list a run's checkpoints, oldest first", ArgsUsage: "RUN",
		Description: example("ddpbatch ckpt ls 123", "ddpbatch ckpt ls --json runs/mnist-20261121-101500-1a2b3c4d"),
	}, 1, 1, nil, func(c *cli.Context, words []string) error {
		folder, dir, err := openCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		infos, err := dir.List(c.Context)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			err = printJSON(e, append([]checkpoint.Info{}, infos...))
		} else if len(infos) > 0 {
			err = ckptPrinter(e).List(infos)
		}
		if err == nil && len(infos) == 0 {
			err = folder.None()
		}
		return err
	})
}

func newCkptShowCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "show", Usage: "show the contents of the newest valid checkpoint, or of the given step", ArgsUsage: "RUN [STEP]",
		Description: example("ddpbatch ckpt show 123", "ddpbatch ckpt show 123 4000",
			"ddpbatch ckpt show --json runs/mnist-20261121-101500-1a2b3c4d/checkpoints/step-000000004000"),
	}, 1, 2, nil, func(c *cli.Context, words []string) error {
		folder, dir, err := openCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		found, err := folder.Choose(c.Context, dir, append(words, "")[1])
		if err != nil {
			return err
		}
		defer found.Close()
		description, err := inspect.Describe(c.Context, dir, found)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(e, description)
		}
		return ckptPrinter(e).Description(description)
	})
}
