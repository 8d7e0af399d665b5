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

// Import writes the tensors of a safetensors file to a folder of checkpoints, as the checkpoint of a step. It puts prefix before every
// name.
func (f Finder) Import(ctx context.Context, file, folder, prefix string, step int64) (checkpoint.Info, error) {
	if step < 0 {
		return checkpoint.Info{}, usage.Errorf("the step must be a whole number from 0, not %d", step)
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

// importFolder returns the folder of checkpoints to write to. It refuses a run's folder: a run cannot resume from weights alone.
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
			Message: fmt.Sprintf("%s belongs to the run %s, which could not resume from an imported checkpoint", f.From.Short(path),
				f.From.Short(run.Path())),
			Hint: "import into another folder; to train on from the file, start a run with train.init",
		}
	}
	if info, err := os.Stat(d.Path); err == nil && !info.IsDir() {
		return d, usage.Errorf("%s is not a folder", f.From.Named(path))
	}
	if err := checkParent(f.From, "import", path); err != nil {
		return d, err
	}
	if isStepFolder(filepath.Base(d.Path)) {
		return d, usage.Errorf("%s has the name of a single checkpoint; name the folder that holds checkpoints", f.From.Named(path))
	}
	return d, nil
}

// openImport opens the file to import. It returns a usage error if the file does not exist.
func (f Finder) openImport(path string) (*safetensors.File, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usage.Errorf("import: %s does not exist", f.From.Named(path))
	case err == nil && info.IsDir():
		return nil, usage.Errorf("import: %s is a folder; name a safetensors file", f.From.Named(path))
	}
	return safetensors.Open(path)
}

// maxMetadata is how much of a file's metadata a checkpoint can hold: it is in the manifest, which has at most 64 MiB.
const maxMetadata = 32 << 20

// importState makes a checkpoint's state from an open file. Its tensors are read from the file while the state is saved. importState
// refuses what a checkpoint cannot hold before any data is read.
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
		return nil, fmt.Errorf("import %s: its metadata has %d bytes, a checkpoint can hold %d", path, size, maxMetadata)
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

// saveImport writes the checkpoint. If that fails, it removes the folder if it created it.
func (d Folder) saveImport(ctx context.Context, state *checkpoint.State) (info checkpoint.Info, err error) {
	made, err := makeFolder(d.Path)
	if err != nil {
		return info, fmt.Errorf("import: %w", err)
	}
	defer func() {
		if made && err != nil {
			_ = os.Remove(d.Path) // fails if somebody else has put something there
		}
	}()
	dir, err := d.OpenToWrite(ctx)
	if err != nil {
		return info, err
	}
	return dir.Save(ctx, state)
}
