package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint/npy"
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

// npy writes the only tensor to a file.
func (x *exporter) npy(ctx context.Context, path string) error {
	if len(x.tensors) != 1 {
		return usagef("a .npy file holds one tensor: name it with --tensor, or write a folder with --format npy")
	}
	t := x.tensors[0]
	return npy.WriteFile(ctx, path, t.DType, t.Shape, func(w io.Writer) error { return x.copy(ctx, t, w) })
}

// folder writes each tensor to a file of its name in a folder. Where one fails, the files that were not there before are gone again.
func (x *exporter) folder(ctx context.Context, path string) (err error) {
	names := map[string]string{}
	for _, t := range x.tensors {
		name, err := arrayFile(t.as)
		if err != nil {
			return err
		}
		names[t.Name] = name
	}
	made, err := makeFolder(path)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	var written []string
	defer func() {
		if err != nil {
			discard(path, made, written)
		}
	}()
	for _, t := range x.tensors {
		file := filepath.Join(path, names[t.Name])
		_, missing := os.Lstat(file)
		err := npy.WriteFile(ctx, file, t.DType, t.Shape, func(w io.Writer) error { return x.copy(ctx, t, w) })
		if err != nil {
			return fmt.Errorf("export: tensor %q: %w", t.Name, err)
		}
		if errors.Is(missing, fs.ErrNotExist) {
			written = append(written, file)
		}
	}
	return nil
}

// discard removes what an export has made.
func discard(folder string, made bool, files []string) {
	for _, file := range files {
		_ = os.Remove(file)
	}
	if made {
		_ = os.Remove(folder) // not empty: somebody else has put something there
	}
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
