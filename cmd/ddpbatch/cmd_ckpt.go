package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/inspect"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

// Exit codes of ckpt commands alone (docs/cli/ckpt.md).
const (
	exitDiffer  = 1 // diff: the two are not the same
	exitTrouble = 2 // diff: they could not be compared, as diff(1) has it
	exitPartly  = 3 // verify, prune: done for some checkpoints, not for others
)

func newCkptCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "ckpt",
		Usage:       "show, verify, compare, prune, export and import checkpoints",
		Description: example("ddpbatch ckpt ls 123", "ddpbatch ckpt verify --read-data 123", "ddpbatch ckpt export 123 model.safetensors"),
		Subcommands: []*cli.Command{
			newCkptLsCommand(e), newCkptShowCommand(e), newCkptVerifyCommand(e), newCkptDiffCommand(e),
			newCkptPruneCommand(e), newCkptExportCommand(e), newCkptImportCommand(e),
		},
	}
}

// ckptCommand returns a subcommand of ckpt. It takes from least to most words, which args names.
func ckptCommand(c cli.Command, least, most int, flags []cli.Flag, action func(c *cli.Context, words []string) error) *cli.Command {
	c.Flags = append(flags, runDirFlag(), jsonFlag())
	c.Action = func(ctx *cli.Context) error {
		words := ctx.Args().Slice()
		if err := checkWords(ctx, least, most); err != nil {
			return err
		}
		if slices.Contains(words, "") { // from an unset variable, for example; it would mean the working directory
			return &usage.Error{Message: fmt.Sprintf("ckpt %s takes %s, but one word is empty", c.Name, c.ArgsUsage),
				Hint: tryHelp(ctx)}
		}
		return judged(action(ctx, words))
	}
	return &c
}

// judged gives the error for an invalid safetensors file the exit code of a corrupt checkpoint.
func judged(err error) error {
	if errors.Is(err, safetensors.ErrInvalid) && !errors.As(err, new(*exit.Error)) {
		return &exit.Error{Code: exit.Corrupt, Err: err}
	}
	return err
}

// finderOf returns a Finder for the checkpoints that a command names.
func finderOf(e *env, c *cli.Context) inspect.Finder {
	return inspect.Finder{
		From: e.dir(), Runs: runsFolder(e, c), Now: e.Now, Log: e.log(),
		Explain: func(err error) error { return runview.ExplainElement(e.dir(), err) },
	}
}

// openCheckpoints opens the directory of checkpoints that a command names, for reading.
func openCheckpoints(e *env, c *cli.Context, name string) (inspect.Folder, *checkpoint.Dir, error) {
	folder, err := finderOf(e, c).Find(c.Context, name)
	if err != nil {
		return folder, nil, err
	}
	dir, err := folder.Open()
	return folder, dir, err
}

func ckptPrinter(e *env) inspect.Printer {
	return inspect.Printer{Out: e.Out, From: e.dir(), Table: func(heading ...string) *text.Table { return newTable(e, heading...) }}
}
