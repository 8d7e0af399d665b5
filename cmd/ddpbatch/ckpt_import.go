package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/rundir"
)

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
		return p, usagef("%s is no folder", e.named(path))
	}
	if err := needFolderOf(e, "import", path); err != nil {
		return p, err
	}
	if isStepFolder(filepath.Base(p.path)) {
		return p, usagef("%s is named as one checkpoint; name the folder that checkpoints are in", e.named(path))
	}
	return p, nil
}

// openImport opens the file to import; exitUsage where there is none of that name.
func openImport(e *env, path string) (*safetensors.File, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usagef("import: there is no file %s", e.named(path))
	case err == nil && info.IsDir():
		return nil, usagef("import: %s is a folder; name a safetensors file", e.named(path))
	}
	return safetensors.Open(path)
}

// maxMetadata is how much of a file's metadata a checkpoint takes, which has them in its manifest of 64 MiB at most.
const maxMetadata = 32 << 20

// importState makes a checkpoint's state of an open file, which its tensors are read from while the state is saved. What a checkpoint cannot
// hold is refused before any data are read.
func importState(f *safetensors.File, path, prefix string, step int64) (*checkpoint.State, error) {
	var pairs [][2]string // nil: the file has no metadata
	if f.Metadata() != nil {
		pairs = [][2]string{}
	}
	size := 0
	for _, field := range f.Metadata() {
		size += len(field.Key) + len(field.Value) + len(`["",""],`)
		pairs = append(pairs, [2]string{field.Key, field.Value})
	}
	if size > maxMetadata {
		return nil, fmt.Errorf("import %s: its metadata take %d bytes, and a checkpoint takes %d", path, size, maxMetadata)
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		return nil, err
	}
	s := &checkpoint.State{Step: step, World: 1, Values: map[string]json.RawMessage{fileMetadataKey: text}, Check: f.Unchanged}
	for _, t := range f.Tensors() {
		if err := t.Known(); err != nil {
			return nil, fmt.Errorf("import %s: %w", path, err)
		}
		s.Tensors = append(s.Tensors, checkpoint.Tensor{Name: prefix + t.Name, DType: t.DType, Shape: t.Shape, From: f.Reader(t)})
	}
	return s, nil
}

// saveImport writes the checkpoint. Where that fails, a folder that it has made is gone again.
func saveImport(ctx context.Context, e *env, place ckptPlace, state *checkpoint.State) (info checkpoint.Info, err error) {
	made, err := makeFolder(place.path)
	if err != nil {
		return info, fmt.Errorf("import: %w", err)
	}
	defer func() {
		if made && err != nil {
			_ = os.Remove(place.path) // not empty: somebody else has put something there
		}
	}()
	dir, err := place.openToWrite(ctx, e)
	if err != nil {
		return info, err
	}
	return dir.Save(ctx, state)
}
