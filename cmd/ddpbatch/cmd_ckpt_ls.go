package main

import (
	"strconv"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
)

func newCkptLsCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "ls", Usage: "list a run's checkpoints, oldest first", ArgsUsage: "RUN",
		Description: example("ddpbatch ckpt ls 123", "ddpbatch ckpt ls --json runs/mnist-20261121-101500-1a2b3c4d"),
	}, 1, 1, nil, func(c *cli.Context, words []string) error {
		place, err := findCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		dir, err := place.open(e)
		if err != nil {
			return err
		}
		infos, err := dir.List(c.Context)
		if err != nil {
			return err
		}
		if err := printCkptLs(e, infos, c.Bool("json")); err != nil {
			return err
		}
		if len(infos) == 0 {
			return place.none(e)
		}
		return nil
	})
}

func printCkptLs(e *env, infos []checkpoint.Info, asJSON bool) error {
	if asJSON {
		return printJSON(e, append([]checkpoint.Info{}, infos...))
	}
	if len(infos) == 0 {
		return nil
	}
	t := newTable(e, "STEP", "STATE", "SIZE", "RATIO", "WORLD", "ATTEMPT", "BASE", "METRICS", "PINNED", "CREATED", "PATH")
	for _, i := range infos {
		t.row(strconv.FormatInt(i.Step, 10), i.State, t.size(i.Bytes), ratio(i.Bytes, i.RawBytes), strconv.Itoa(i.World), strconv.Itoa(i.Attempt),
			baseText(i.BaseStep), metricsText(i.Metrics), pinnedText(i.Pinned), timeText(i.Created), e.short(i.Path))
	}
	return t.flush()
}
