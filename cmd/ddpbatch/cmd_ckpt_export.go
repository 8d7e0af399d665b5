package main

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/usage"
)

func newCkptExportCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "export", Usage: "write the model of a run's newest checkpoint, or of the named one, to a safetensors file or to .npy files",
		ArgsUsage: "RUN [STEP] FILE",
		Description: example("ddpbatch ckpt export 123 model.safetensors", "ddpbatch ckpt export 123 4000 all.safetensors --all",
			"ddpbatch ckpt export 123 weight.npy --tensor 0.weight", "ddpbatch ckpt export 123 arrays/ --format npy"),
	}, 2, 3, []cli.Flag{
		&cli.StringFlag{Name: "format",
			Usage: "format `NAME`: safetensors, or npy: a file with --tensor, else a folder of files (default: by FILE's extension)"},
		&cli.StringFlag{Name: "tensor", Usage: "only the tensor of this `NAME`"},
		&cli.BoolFlag{Name: "all", Usage: "also tensors outside the model, such as the optimizer's state; names keep their prefix"},
	}, func(c *cli.Context, words []string) error {
		step, file := "", words[len(words)-1]
		if len(words) == 3 {
			step = words[1]
		} else if inspect.IsStep(file) && filepath.Ext(file) == "" {
			return &usage.Error{
				Message: fmt.Sprintf("ckpt export takes RUN [STEP] FILE, but %s is a step: name the file too", file),
				Hint:    fmt.Sprintf("for a file of this name write ./%s", file),
			}
		}
		kind, err := inspect.ExportKind(e.dir(), file, c.String("format"), c.String("tensor"))
		if err != nil {
			return err
		}
		folder, dir, err := openCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		found, err := folder.Choose(c.Context, dir, step)
		if err != nil {
			return err
		}
		defer found.Close()
		x, err := inspect.NewExport(found, c.String("tensor"), c.Bool("all"))
		if err != nil {
			return err
		}
		path := e.abs(file)
		if err := x.Write(c.Context, kind, path); err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(e, exported{found.Step(), path, x.Tensors()})
		}
		_, err = fmt.Fprintln(e.Out, path)
		return err
	})
}

// exported is the JSON output of export; its names are a contract.
type exported struct {
	Step    int64  `json:"step"`
	Path    string `json:"path"`
	Tensors int    `json:"tensors"`
}

func newCkptImportCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "import", Usage: "write the tensors of a safetensors file to a folder of checkpoints, as the checkpoint of a step",
		ArgsUsage: "FILE.safetensors DIR",
		Description: example("ddpbatch ckpt import model.safetensors imported",
			"ddpbatch ckpt import all.safetensors imported --prefix= --step 4000"),
	}, 2, 2, []cli.Flag{
		&cli.Int64Flag{Name: "step", Usage: "the checkpoint gets step `N`"},
		&cli.StringFlag{Name: "prefix", Value: inspect.ModelPrefix, Usage: "prefix for every name; export removes it again"},
	}, func(c *cli.Context, words []string) error {
		info, err := finderOf(e, c).Import(c.Context, words[0], words[1], c.String("prefix"), c.Int64("step"))
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
