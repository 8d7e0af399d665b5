package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"
)

func newCkptExportCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "export", Usage: "write the model of a checkpoint, a run's newest or the one named, to a safetensors file or to .npy files",
		ArgsUsage: "RUN [STEP] FILE",
		Description: example("ddpbatch ckpt export 123 model.safetensors", "ddpbatch ckpt export 123 4000 all.safetensors --all",
			"ddpbatch ckpt export 123 weight.npy --tensor 0.weight", "ddpbatch ckpt export 123 arrays/ --format npy"),
	}, 2, 3, []cli.Flag{
		&cli.StringFlag{Name: "format", Usage: "`NAME`: safetensors, or npy (a file with --tensor, else a folder with a file for each); by FILE's ending where it is left out"},
		&cli.StringFlag{Name: "tensor", Usage: "only the tensor of this `NAME`"},
		&cli.BoolFlag{Name: "all", Usage: "also what is not the model, as the optimizer's state; names keep their prefix"},
	}, func(c *cli.Context, words []string) error {
		step, file := "", words[len(words)-1]
		if len(words) == 3 {
			step = words[1]
		} else if _, err := parseStep(file); err == nil && filepath.Ext(file) == "" {
			return &usageError{
				message: fmt.Sprintf("ckpt export takes RUN [STEP] FILE, and %s is a step: name the file, too", file),
				hint:    fmt.Sprintf("one that is to be named so: ./%s", file),
			}
		}
		kind, err := exportKind(e, file, c.String("format"), c.String("tensor"))
		if err != nil {
			return err
		}
		place, err := findCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		dir, err := place.open(e)
		if err != nil {
			return err
		}
		found, err := place.choose(c.Context, e, dir, step)
		if err != nil {
			return err
		}
		defer found.Close()
		x := &exporter{checkpoint: found, buf: make([]byte, exportPiece)}
		if err := x.choose(c.String("tensor"), c.Bool("all")); err != nil {
			return err
		}
		path := e.abs(file)
		write := map[string]func(context.Context, string) error{exportTensors: x.safetensors, exportArray: x.npy, exportArrays: x.folder}[kind]
		if err := write(c.Context, path); err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(e, exported{found.Step(), path, len(x.tensors)})
		}
		_, err = fmt.Fprintln(e.Out, path)
		return err
	})
}

// exported is what export prints as JSON; its names are a contract.
type exported struct {
	Step    int64  `json:"step"`
	Path    string `json:"path"`
	Tensors int    `json:"tensors"`
}

func newCkptImportCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "import", Usage: "write the tensors of a safetensors file to a folder of checkpoints, as the checkpoint of a step", ArgsUsage: "FILE.safetensors DIR",
		Description: example("ddpbatch ckpt import model.safetensors imported", "ddpbatch ckpt import all.safetensors imported --prefix= --step 4000"),
	}, 2, 2, []cli.Flag{
		&cli.Int64Flag{Name: "step", Usage: "the checkpoint is of step `N`"},
		&cli.StringFlag{Name: "prefix", Value: modelPrefix, Usage: "put before every name; what export takes away again"},
	}, func(c *cli.Context, words []string) error {
		if c.Int64("step") < 0 {
			return usagef("a step is a whole number from 0, not %d", c.Int64("step"))
		}
		place, err := importPlace(e, e.abs(words[1]))
		if err != nil {
			return err
		}
		file := e.abs(words[0])
		f, err := openImport(e, file)
		if err != nil {
			return err
		}
		defer f.Close() // it is only read
		state, err := importState(f, file, c.String("prefix"), c.Int64("step"))
		if err != nil {
			return err
		}
		info, err := saveImport(c.Context, e, place, state)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(e, info)
		}
		_, err = fmt.Fprintln(e.Out, info.Path)
		return err
	})
}
