package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/rundir"
)

func newCkptImportCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "import", Usage: "write the tensors of a safetensors file to a folder of checkpoints, as the checkpoint of a step", ArgsUsage: "FILE.safetensors DIR",
		Description: example("ddpbatch ckpt import model.safetensors imported", "ddpbatch ckpt import all.safetensors imported --prefix= --step 4000"),
	}, 2, 2, []cli.Flag{
		&cli.Int64Flag{Name: "step", Usage: "the checkpoint's step"},
		&cli.StringFlag{Name: "prefix", Value: modelPrefix, Usage: "put before every name; what export takes away again"},
	}, func(c *cli.Context, words []string) error {
		if c.Int64("step") < 0 {
			return usagef("a step is a whole number from 0, not %d", c.Int64("step"))
		}
		place, err := importPlace(e, e.abs(words[1]))
		if err != nil {
			return err
		}
		state, err := readImport(e.abs(words[0]), c.String("prefix"), c.Int64("step"))
		if err != nil {
			return err
		}
		if err := makeFolder(place.path); err != nil {
			return err
		}
		dir, err := place.openToWrite(c.Context, e)
		if err != nil {
			return err
		}
		info, err := dir.Save(c.Context, state)
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

// importPlace is the folder of checkpoints to write to. That of a run is refused: no run can go on from weights alone.
func importPlace(e *env, path string) (ckptPlace, error) {
	p := ckptPlace{path: path}
	real := path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		real = resolved
	}
	run, err := rundir.Open(real)
	if err != nil {
		run, err = runOfCheckpoints(real)
	}
	if err == nil {
		return p, &usageError{
			message: fmt.Sprintf("%s belongs to the run %s, which could not go on from an imported checkpoint", e.short(path), e.short(run.Path())),
			hint:    "import into another folder; to train on from the file, start a run with train.init",
		}
	}
	if info, err := os.Stat(p.path); err == nil && !info.IsDir() {
		return p, usagef("%s is no folder", path)
	}
	if isStepFolder(filepath.Base(p.path)) {
		return p, usagef("%s is named as one checkpoint; name the folder that checkpoints are in", path)
	}
	return p, nil
}

// readImport makes a checkpoint's state of a file.
func readImport(path, prefix string, step int64) (*checkpoint.State, error) {
	if err := metadataFits(path); err != nil {
		return nil, err
	}
	tensors, metadata, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for i := range tensors {
		tensors[i].Name = prefix + tensors[i].Name
	}
	var pairs [][2]string // nil: the file has no metadata
	if metadata != nil {
		pairs = [][2]string{}
	}
	for _, f := range metadata {
		pairs = append(pairs, [2]string{f.Key, f.Value})
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		return nil, err
	}
	return &checkpoint.State{
		Step: step, World: 1, Tensors: tensors, Values: map[string]json.RawMessage{fileMetadataKey: text},
	}, nil
}

// maxMetadata is how much of a file's metadata a checkpoint takes, which has them in its manifest of 64 MiB at most.
const maxMetadata = 32 << 20

// metadataFits refuses a file before anything is made of its metadata, or its data are read.
func metadataFits(path string) error {
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	size := 0
	for _, field := range f.Metadata() {
		size += len(field.Key) + len(field.Value) + len(`["",""],`)
	}
	if size > maxMetadata {
		return fmt.Errorf("import %s: its metadata take %d bytes, and a checkpoint takes %d", path, size, maxMetadata)
	}
	return nil
}

// makeFolder makes a folder whose parent is there, unless it is there itself.
func makeFolder(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil && (!errors.Is(err, fs.ErrExist) || !isDir(path)) {
		return err
	}
	return nil
}
