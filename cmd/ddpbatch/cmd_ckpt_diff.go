package main

import (
	"context"
	"errors"
	"math"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/usage"
)

func newCkptDiffCommand(e *env) *cli.Command {
	command := ckptCommand(cli.Command{
		Name: "diff", Usage: "compare two checkpoints, two steps of a run, or files of safetensors or torch.save; exit 0: the same, 1: not",
		ArgsUsage: "A B | RUN STEP1 STEP2",
		Description: example("ddpbatch ckpt diff 123 4000 5000", "ddpbatch ckpt diff 123 124 --rtol 1e-5",
			"ddpbatch ckpt diff 123 model.safetensors"),
	}, 2, 3, []cli.Flag{atolFlag(), rtolFlag()}, func(c *cli.Context, words []string) error {
		tolerance, err := toleranceOf(c)
		if err != nil {
			return err
		}
		if len(words) == 3 {
			words = []string{words[0], words[1], words[0], words[2]}
		} else {
			words = []string{words[0], "", words[1], ""}
		}
		finder := finderOf(e, c)
		a, err := finder.Contents(c.Context, words[0], words[1])
		if err != nil {
			return err
		}
		defer a.Close()
		b, err := finder.Contents(c.Context, words[2], words[3])
		if err != nil {
			return err
		}
		defer b.Close()
		return runCkptDiff(c.Context, e, a, b, tolerance, c.Bool("json"))
	})
	run := command.Action
	command.Action = func(c *cli.Context) error { return troubled(run(c)) }
	return command
}

func atolFlag() cli.Flag {
	return &cli.Float64Flag{Name: "atol",
		Usage: "floats are equal within `X`, plus what --rtol allows; if both are 0, they must have the same bits"}
}

func rtolFlag() cli.Flag {
	return &cli.Float64Flag{Name: "rtol", Usage: "floats are equal within `X` times the second, plus --atol"}
}

// toleranceOf returns the tolerance of atolFlag and rtolFlag.
func toleranceOf(c *cli.Context) (inspect.Tolerance, error) {
	t := inspect.Tolerance{Abs: c.Float64("atol"), Rel: c.Float64("rtol")}
	if !(t.Abs >= 0 && t.Rel >= 0) || math.IsInf(t.Abs+t.Rel, 0) {
		return t, usage.Errorf("--atol and --rtol must be numbers of at least 0")
	}
	return t, nil
}

// troubled distinguishes an error without its own exit code from "they differ".
func troubled(err error) error {
	if exitCode(err) != exit.Failed || errors.As(err, new(*exit.Error)) {
		return err
	}
	return &exit.Error{Code: exitTrouble, Err: err}
}

func runCkptDiff(ctx context.Context, e *env, a, b *inspect.Contents, t inspect.Tolerance, asJSON bool) error {
	d, err := inspect.Compare(ctx, a, b, t)
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(e, d)
	} else {
		err = ckptPrinter(e).Difference(d)
	}
	if err == nil && !d.Same {
		err = &exit.Error{Code: exitDiffer}
	}
	return err
}
