package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/rundir"
)

func newCkptCommand(e *env) *cli.Command {
	sub := func(name, usage, args string, flags []cli.Flag, action func(c *cli.Context, words []string) error) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: args, Flags: append(flags, runDirFlag(), jsonFlag()),
			Description: example("ddpbatch ckpt " + name + " 123"),
			Action: func(c *cli.Context) error {
				words := c.Args().Slice()
				if len(words) == 0 || len(words) > len(strings.Fields(args)) {
					return usagef("ckpt %s takes %s, not %d words", name, args, len(words))
				}
				return action(c, words)
			},
		}
	}
	return &cli.Command{
		Name:        "ckpt",
		Usage:       "look into checkpoints and verify them",
		Description: example("ddpbatch ckpt ls 123", "ddpbatch ckpt verify runs/mnist-20261121-101500-1a2b"),
		Subcommands: []*cli.Command{
			sub("ls", "list a run's checkpoints", "RUN", nil, func(c *cli.Context, words []string) error {
				dir, _, err := openCheckpoints(e, c, words[0])
				if err != nil {
					return err
				}
				return runCkptList(c.Context, e, dir, c.Bool("json"))
			}),
			sub("show", "show what a checkpoint holds: the newest, or the step named", "RUN [STEP]", nil, func(c *cli.Context, words []string) error {
				dir, steps, err := chooseSteps(e, c, words, false)
				if err != nil {
					return err
				}
				return runCkptShow(c.Context, e, dir, steps[0], c.Bool("json"))
			}),
			sub("verify", "read every byte and check it: of all checkpoints, or of the step named", "RUN [STEP]", nil, func(c *cli.Context, words []string) error {
				dir, steps, err := chooseSteps(e, c, words, true)
				if err != nil {
					return err
				}
				return runCkptVerify(c.Context, e, dir, steps, c.Bool("json"))
			}),
			sub("export", "write the model of a checkpoint, the newest or the one named, to a safetensors file", "CKPT FILE", nil, func(c *cli.Context, words []string) error {
				if len(words) != 2 {
					return usagef("ckpt export takes CKPT FILE: a run or a checkpoint, and the file to write")
				}
				dir, steps, err := chooseSteps(e, c, words[:1], false)
				if err != nil {
					return err
				}
				return runCkptExport(c.Context, e, dir, steps[0], e.abs(words[1]), c.Bool("json"))
			}),
		},
	}
}

// openCheckpoints opens the checkpoints of a run named by job id or directory, or a folder of checkpoints
// itself. A step's own folder (…/step-000000000016) also names that step.
func openCheckpoints(e *env, c *cli.Context, name string) (*checkpoint.Dir, string, error) {
	path, step := e.abs(name), ""
	if base := filepath.Base(path); strings.HasPrefix(base, "step-") && isDir(path) {
		path, step = filepath.Dir(path), strings.TrimPrefix(base, "step-")
	} else if run, err := rundir.Open(path); err == nil {
		path = run.CheckpointsPath()
	} else if filepath.Base(path) != "checkpoints" || !isDir(path) {
		run, _, err := findJob(e, e.abs(c.String("runs")), name)
		if err != nil {
			return nil, "", err
		}
		path = run.CheckpointsPath()
	}
	dir, err := checkpoint.Open(path, checkpoint.Options{Log: e.log()})
	return dir, step, err
}

// chooseSteps lists the steps that a command works on: the one named, else all (newest last) or the newest.
func chooseSteps(e *env, c *cli.Context, words []string, all bool) (*checkpoint.Dir, []int64, error) {
	dir, named, err := openCheckpoints(e, c, words[0])
	if err != nil {
		return nil, nil, err
	}
	if len(words) == 2 {
		named = strings.TrimPrefix(words[1], "step-")
	}
	if named != "" {
		step, err := strconv.ParseInt(named, 10, 64)
		if err != nil || step < 0 {
			return nil, nil, usagef("a step is a whole number, not %q", named)
		}
		return dir, []int64{step}, nil
	}
	infos, err := dir.List(c.Context)
	if err != nil {
		return nil, nil, err
	}
	var steps []int64
	for _, info := range infos {
		if info.State != "partial" {
			steps = append(steps, info.Step)
		}
	}
	if len(steps) == 0 {
		return nil, nil, checkpoint.ErrNone
	}
	if !all {
		steps = steps[len(steps)-1:]
	}
	return dir, steps, nil
}

func runCkptList(ctx context.Context, e *env, dir *checkpoint.Dir, asJSON bool) error {
	infos, err := dir.List(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		if infos == nil {
			infos = []checkpoint.Info{}
		}
		return printJSON(e, infos)
	}
	if len(infos) == 0 {
		return checkpoint.ErrNone
	}
	t := newTable(e, "STEP", "STATE", "BYTES", "WORLD", "ATTEMPT", "CREATED", "PATH")
	for _, i := range infos {
		created := "-"
		if !i.Created.IsZero() {
			created = i.Created.Local().Format(time.DateTime)
		}
		t.row(strconv.FormatInt(i.Step, 10), i.State, strconv.FormatInt(i.Bytes, 10), strconv.Itoa(i.World),
			strconv.Itoa(i.Attempt), created, e.short(i.Path))
	}
	return t.flush()
}

func runCkptShow(ctx context.Context, e *env, dir *checkpoint.Dir, step int64, asJSON bool) error {
	state, err := dir.Load(ctx, step)
	if err != nil {
		return err
	}
	type tensor struct {
		Name  string `json:"name"`
		DType string `json:"dtype"`
		Shape []int  `json:"shape"`
		Bytes int    `json:"bytes"`
	}
	var tensors []tensor
	for _, t := range state.Tensors {
		tensors = append(tensors, tensor{t.Name, t.DType, t.Shape, len(t.Data)})
	}
	if asJSON {
		return printJSON(e, struct {
			Step    int64                      `json:"step"`
			World   int                        `json:"world"`
			Tensors []tensor                   `json:"tensors"`
			Values  map[string]json.RawMessage `json:"values"`
		}{state.Step, state.World, tensors, state.Values})
	}
	fmt.Fprintf(e.Out, "step %d, saved by %s\n", state.Step, plural(state.World, "rank"))
	t := newTable(e, "TENSOR", "TYPE", "SHAPE", "BYTES")
	for _, x := range tensors {
		t.row(x.Name, x.DType, fmt.Sprint(x.Shape), strconv.Itoa(x.Bytes))
	}
	return t.flush()
}

func runCkptVerify(ctx context.Context, e *env, dir *checkpoint.Dir, steps []int64, asJSON bool) error {
	type row struct {
		Step  int64  `json:"step"`
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	rows := []row{}
	var bad []error
	for _, step := range steps {
		err := dir.Verify(ctx, step)
		r := row{Step: step, OK: err == nil}
		if err != nil {
			r.Error = err.Error()
			bad = append(bad, err)
		}
		rows = append(rows, r)
		if !asJSON && err == nil {
			fmt.Fprintf(e.Out, "step %d: ok\n", step)
		}
	}
	if asJSON {
		if err := printJSON(e, rows); err != nil {
			return err
		}
		if len(bad) > 0 {
			return &codeError{code: exitCode(errors.Join(bad...))}
		}
		return nil
	}
	return errors.Join(bad...)
}

func runCkptExport(ctx context.Context, e *env, dir *checkpoint.Dir, step int64, file string, asJSON bool) error {
	s, err := dir.Load(ctx, step)
	if err != nil {
		return err
	}
	if err := exportModel(s, file); err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(e.Out).Encode(struct {
			Step int64  `json:"step"`
			Path string `json:"path"`
		}{step, file})
	}
	fmt.Fprintln(e.Out, file)
	return nil
}
