package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint/npy"
)

func newCkptExportCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "export", Usage: "write the model of a checkpoint, a run's newest or the one named, to a safetensors file or to .npy files",
		ArgsUsage: "CKPT FILE",
		Description: example("ddpbatch ckpt export 123 model.safetensors", "ddpbatch ckpt export runs/mnist-20261121-101500-1a2b/checkpoints/step-000000004000 all.safetensors --all",
			"ddpbatch ckpt export 123 weight.npy --tensor 0.weight", "ddpbatch ckpt export 123 arrays/ --format npy"),
	}, 2, 2, []cli.Flag{
		&cli.StringFlag{Name: "format", Usage: "`NAME`: safetensors, or npy (a file with --tensor, else a folder with a file for each); by FILE's ending where it is left out"},
		&cli.StringFlag{Name: "tensor", Usage: "only the tensor of this `NAME`"},
		&cli.BoolFlag{Name: "all", Usage: "also what is not the model, as the optimizer's state; names keep their prefix"},
	}, func(c *cli.Context, words []string) error {
		place, err := findCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		dir, err := place.open(e)
		if err != nil {
			return err
		}
		found, err := place.choose(c.Context, dir, "")
		if err != nil {
			return err
		}
		defer found.Close()
		x := &exporter{checkpoint: found, buf: make([]byte, exportPiece)}
		if err := x.choose(c.String("tensor"), c.Bool("all")); err != nil {
			return err
		}
		path := e.abs(words[1])
		switch format := c.String("format"); {
		case format == "safetensors" || format == "" && filepath.Ext(path) != ".npy":
			err = x.safetensors(c.Context, path)
		case format == "npy" && c.String("tensor") == "":
			err = x.folder(c.Context, path)
		case format == "npy" || format == "":
			err = x.npy(c.Context, path)
		default:
			err = usagef("there is no format %q; it is safetensors or npy", format)
		}
		if err != nil {
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

// npy writes the only tensor to a file.
func (x *exporter) npy(ctx context.Context, path string) error {
	if len(x.tensors) != 1 {
		return usagef("a .npy file holds one tensor: name it with --tensor, or write a folder with --format npy")
	}
	t := x.tensors[0]
	return npy.WriteFile(ctx, path, t.DType, t.Shape, func(w io.Writer) error { return x.copy(ctx, t, w) })
}

// folder writes each tensor to a file of its name in a folder.
func (x *exporter) folder(ctx context.Context, path string) error {
	names := map[string]string{}
	for _, t := range x.tensors {
		name, err := arrayFile(t.as)
		if err != nil {
			return err
		}
		names[t.Name] = name
	}
	if err := makeFolder(path); err != nil {
		return err
	}
	for _, t := range x.tensors {
		err := npy.WriteFile(ctx, filepath.Join(path, names[t.Name]), t.DType, t.Shape, func(w io.Writer) error { return x.copy(ctx, t, w) })
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

// arrayFile is the name of a tensor's file: its own, with every byte that a file's name should not have as %XX. No two tensors get the same.
func arrayFile(name string) (string, error) {
	var out strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			out.WriteByte(c)
		default:
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	out.WriteString(".npy")
	if out.Len() > 255 {
		return "", fmt.Errorf("tensor %q has a name too long for a file's; export it alone: --tensor NAME FILE.npy", name)
	}
	return out.String(), nil
}
