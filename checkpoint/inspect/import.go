package inspect

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
	"ddpbatch/internal/usage"
)

// Import writes the tensors of a safetensors file to a folder of checkpoints, as the checkpoint of a step. prefix comes before every name.
func (f Finder) Import(ctx context.Context, file, folder, prefix string, step int64) (checkpoint.Info, error) {
	if step < 0 {
		return checkpoint.Info{}, usage.Errorf("a step is a whole number from 0, not %d", step)
	}
	to, err := f.importFolder(f.From.Abs(folder))
	if err != nil {
		return checkpoint.Info{}, err
	}
	file = f.From.Abs(file)
	opened, err := f.openImport(file)
	if err != nil {
		return checkpoint.Info{}, err
	}
	defer opened.Close() // it is only read
	state, err := importState(opened, file, prefix, step)
	if err != nil {
		return checkpoint.Info{}, err
	}
	return to.saveImport(ctx, state)
}

// importFolder is the folder of checkpoints to write to. That of a run is refused: no run can go on from weights alone.
func (f Finder) importFolder(path string) (Folder, error) {
	d := Folder{Finder: f, Path: path}
	real := path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		real = resolved
	}
	run, err := rundir.Open(real)
	if err != nil {
		run, err = runOfCheckpoints(real)
	}
	if err == nil {
		return d, &usage.Error{
			Message: fmt.Sprintf("%s belongs to the run %s, which could not go on from an imported checkpoint", f.From.Short(path),
				f.From.Short(run.Path())),
			Hint: "import into another folder; to train on from the file, start a run with train.init",
		}
	}
	if info, err := os.Stat(d.Path); err == nil && !info.IsDir() {
		return d, usage.Errorf("%s is no folder", f.From.Named(path))
	}
	if err := checkParent(f.From, "import", path); err != nil {
		return d, err
	}
	if isStepFolder(filepath.Base(d.Path)) {
		return d, usage.Errorf("%s is named as one checkpoint; name the folder that checkpoints are in", f.From.Named(path))
	}
	return d, nil
}

// openImport opens the file to import; a usage error where there is none of that name.
func (f Finder) openImport(path string) (*safetensors.File, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usage.Errorf("import: there is no file %s", f.From.Named(path))
	case err == nil && info.IsDir():
		return nil, usage.Errorf("import: %s is a folder; name a safetensors file", f.From.Named(path))
	}
	return safetensors.Open(path)
}

// maxMetadata is how much of a file's metadata a checkpoint takes, which has them in its manifest of 64 MiB at most.
const maxMetadata = 32 << 20

// importState makes a checkpoint's state of an open file, which its tensors are read from while the state is saved. What a checkpoint
// cannot hold is refused before any data are read.
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
	metadata, err := json.Marshal(pairs)
	if err != nil {
		return nil, err
	}
	s := &checkpoint.State{Step: step, World: 1, Values: map[string]json.RawMessage{fileMetadataKey: metadata}, Check: f.Unchanged}
	for _, t := range f.Tensors() {
		if err := t.Known(); err != nil {
			return nil, fmt.Errorf("import %s: %w", path, err)
		}
		s.Tensors = append(s.Tensors, checkpoint.Tensor{Name: prefix + t.Name, DType: t.DType, Shape: t.Shape, From: f.Reader(t)})
	}
	return s, nil
}

// saveImport writes the checkpoint. Where that fails, a folder that it has made is gone again.
func (d Folder) saveImport(ctx context.Context, state *checkpoint.State) (info checkpoint.Info, err error) {
	made, err := makeFolder(d.Path)
	if err != nil {
		return info, fmt.Errorf("import: %w", err)
	}
	defer func() {
		if made && err != nil {
			_ = os.Remove(d.Path) // not empty: somebody else has put something there
		}
	}()
	dir, err := d.OpenToWrite(ctx)
	if err != nil {
		return info, err
	}
	return dir.Save(ctx, state)
}
