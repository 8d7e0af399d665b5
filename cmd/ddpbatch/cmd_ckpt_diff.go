package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

func newCkptDiffCommand(e *env) *cli.Command {
	command := ckptCommand(cli.Command{
		Name: "diff", Usage: "compare two checkpoints, two steps of a run, or safetensors files; exit 0: the same, 1: not", ArgsUsage: "A B | RUN STEP1 STEP2",
		Description: example("ddpbatch ckpt diff 123 4000 5000", "ddpbatch ckpt diff 123 124 --rtol 1e-5", "ddpbatch ckpt diff 123 model.safetensors"),
	}, 2, 3, []cli.Flag{
		&cli.Float64Flag{Name: "atol", Usage: "floats are the same within `X`, plus what --rtol allows; where both are 0, only equal bits are"},
		&cli.Float64Flag{Name: "rtol", Usage: "floats are the same within `X` times the second, plus --atol"},
	}, func(c *cli.Context, words []string) error {
		tolerance := inspect.Tolerance{Abs: c.Float64("atol"), Rel: c.Float64("rtol")}
		if !(tolerance.Abs >= 0 && tolerance.Rel >= 0) || math.IsInf(tolerance.Abs+tolerance.Rel, 0) {
			return usage.Errorf("--atol and --rtol must be numbers from 0")
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

// troubled keeps an error that has no code of its own apart from "they differ".
func troubled(err error) error {
	var coded *exit.Error
	if exitCode(err) != exitFailed || errors.As(err, &coded) {
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
		err = printDifference(e, d)
	}
	if err == nil && !d.Same {
		err = &exit.Error{Code: exitDiffer}
	}
	return err
}

func printDifference(e *env, d *inspect.Difference) error {
	for _, name := range d.OnlyA {
		fmt.Fprintf(e.Out, "only in the first: %s\n", text.Clean(name))
	}
	for _, name := range d.OnlyB {
		fmt.Fprintf(e.Out, "only in the second: %s\n", text.Clean(name))
	}
	if len(d.Tensors) > 0 {
		t := newTable(e, "TENSOR", "IS", "DIFFER", "OF", "MAX ABS", "MAX REL")
		for _, x := range d.Tensors {
			t.Row(x.Name, x.Is(), strconv.FormatInt(x.Differ, 10), strconv.FormatInt(x.Elements, 10), number(x.MaxAbs), number(x.MaxRel))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, v := range d.Values {
		fmt.Fprintf(e.Out, "value %s: %s and %s\n", text.Clean(v.Name), valueText(v.A), valueText(v.B))
	}
	values := ""
	if n := len(d.Values); n > 0 {
		values = fmt.Sprintf("; values that differ: %d", n)
	}
	_, err := fmt.Fprintf(e.Out, "%s the same, %d not%s\n", text.Plural(d.Equal, "tensor"), len(d.Tensors)+len(d.OnlyA)+len(d.OnlyB), values)
	return err
}

func valueText(value *string) string {
	if value == nil {
		return "none"
	}
	return shorten(text.Clean(*value))
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'g', 4, 64)
}
