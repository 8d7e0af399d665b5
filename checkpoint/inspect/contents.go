package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/torchfile"
	"ddpbatch/internal/usage"
)

// Contents are the tensors and values of a checkpoint, or of a file of safetensors or of torch.save, for Compare.
type Contents struct {
	tensors []tensor
	values  map[string]json.RawMessage // nil for a safetensors file, which has none
	ours    bool                       // it is a checkpoint, and not a file
	check   func() error               // returns an error if the source changed while it was read
	close   func() error
}

// tensor is a tensor whose bytes can be read in parts.
type tensor struct {
	name, dtype string
	shape       []int
	bytes       int64
	read        func(ctx context.Context, start int64, dst []byte) error
}

// Contents opens a file of safetensors or of torch.save, or the checkpoint that name and word select.
func (f Finder) Contents(ctx context.Context, name, word string) (*Contents, error) {
	info, missing := os.Stat(f.From.Abs(name))
	if missing == nil && !info.IsDir() {
		if word != "" {
			return nil, usage.Errorf("%s is a file and has no steps; compare it with one checkpoint: ddpbatch ckpt diff %s CKPT", name,
				name)
		}
		return OpenFile(f.From.Abs(name))
	}
	if errors.Is(missing, fs.ErrNotExist) && strings.HasSuffix(name, ".safetensors") {
		return nil, &exit.Error{Code: exit.NoCheckpoint, Err: fmt.Errorf("%s does not exist", f.From.Named(name))}
	}
	folder, err := f.Find(ctx, name)
	if err != nil {
		if why, ok := errors.AsType[*usage.Error](err); ok && errors.Is(missing, fs.ErrNotExist) {
			return nil, f.noContents(name, why)
		}
		return nil, err
	}
	dir, err := folder.Open()
	if err != nil {
		return nil, err
	}
	found, err := folder.Choose(ctx, dir, word)
	if err != nil {
		why, ok := errors.AsType[*usage.Error](err)
		if file, missing := os.Stat(f.From.Abs(word)); ok && !IsStep(word) && missing == nil && !file.IsDir() {
			hint := fmt.Sprintf("to compare a step with a file: ddpbatch ckpt diff %s/step-... %s", f.From.Short(folder.Path), word)
			return nil, &usage.Error{Message: why.Message, Hint: hint}
		}
		return nil, err
	}
	return OfCheckpoint(found), nil
}

// noContents returns the error for a name that is neither a file nor anything that Find accepts; why is Find's error.
func (f Finder) noContents(name string, why *usage.Error) error {
	if strings.ContainsRune(name, filepath.Separator) {
		return usage.Errorf("%s does not exist; name a file of safetensors or of torch.save, %s", f.From.Named(name), whatRun)
	}
	err := &usage.Error{Message: why.Message}
	if IsStep(name) {
		err.Hint = "to compare two steps of a run: ddpbatch ckpt diff RUN STEP1 STEP2"
	}
	return err
}

// OpenFile opens a file of safetensors or of torch.save, for Compare.
func OpenFile(path string) (*Contents, error) {
	t, err := torchfile.Open(path)
	switch {
	case err == nil:
		return ofTorch(t), nil
	case !errors.Is(err, torchfile.ErrNotTorch):
		return nil, err
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	s := &Contents{check: f.Unchanged, close: f.Close}
	for _, t := range f.Tensors() {
		dtype := cmp.Or(t.DType, t.Type)
		s.tensors = append(s.tensors, tensor{t.Name, dtype, t.Shape, t.Bytes, func(ctx context.Context, start int64, dst []byte) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return f.Read(t, start, dst)
		}})
	}
	return s, nil
}

// ofTorch returns the contents of a file of torch.save.
func ofTorch(f *torchfile.File) *Contents {
	s := &Contents{check: f.Unchanged, close: f.Close, values: f.Values()}
	for _, t := range f.Tensors() {
		s.tensors = append(s.tensors, tensor{t.Name, t.DType, t.Shape(), t.Bytes, func(ctx context.Context, start int64, dst []byte) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return f.Read(t, start, dst)
		}})
	}
	return s
}

// OfCheckpoint returns the contents of a checkpoint. Their Close closes it.
func OfCheckpoint(c *checkpoint.Checkpoint) *Contents {
	s := &Contents{ours: true, check: func() error { return nil }, close: c.Close, values: c.Values()} // its checksums detect changes
	if s.values == nil {
		s.values = map[string]json.RawMessage{}
	}
	for _, t := range c.Tensors() {
		s.tensors = append(s.tensors, tensor{t.Name, t.DType, t.Shape, t.Bytes, func(ctx context.Context, start int64, dst []byte) error {
			return c.Read(ctx, []checkpoint.Target{{Name: t.Name, Start: start, Data: dst}})
		}})
	}
	return s
}

// keepExported keeps only what an export of a checkpoint contains: the model, under PyTorch's names. Contents without a model stay as they
// are.
func (s *Contents) keepExported() {
	var model []tensor
	for _, t := range s.tensors {
		if name, ok := strings.CutPrefix(t.name, ModelPrefix); ok {
			t.name = name
			model = append(model, t)
		}
	}
	if len(model) > 0 {
		s.tensors = model
	}
}

// reduceTo reduces a checkpoint to what a file of weights has: the model, without its prefix, and no values. If all names in the file have
// the prefix of DistributedDataParallel, and those of the model do not, they lose it. A file in which more names are those of the whole
// checkpoint is compared with all of it.
func (s *Contents) reduceTo(file *Contents) {
	names := map[string]bool{}
	for _, t := range file.tensors {
		names[t.name] = true
	}
	whole, reduced := 0, 0 // names that are also in the file
	for _, t := range s.tensors {
		if names[t.name] {
			whole++
		}
		if name, ok := strings.CutPrefix(t.name, ModelPrefix); ok && names[name] {
			reduced++
		}
	}
	if whole > reduced {
		return
	}
	s.keepExported()
	s.values = nil
	const ddpPrefix = "module."
	if file.named(ddpPrefix) == len(file.tensors) && s.named(ddpPrefix) == 0 {
		for i := range file.tensors {
			file.tensors[i].name = strings.TrimPrefix(file.tensors[i].name, ddpPrefix)
		}
	}
}

// named counts the tensors whose names have a prefix.
func (s *Contents) named(prefix string) (n int) {
	for _, t := range s.tensors {
		if strings.HasPrefix(t.name, prefix) {
			n++
		}
	}
	return n
}

// align makes a checkpoint comparable with a file, by reducing it to what an export of it would contain. It sorts the tensors of both.
func align(a, b *Contents) {
	switch {
	case a.ours && !b.ours:
		a.reduceTo(b)
	case b.ours && !a.ours:
		b.reduceTo(a)
	}
	for _, s := range []*Contents{a, b} {
		slices.SortFunc(s.tensors, func(x, y tensor) int { return strings.Compare(x.name, y.name) })
	}
}

// Values returns the number of values. A safetensors file has none.
func (s *Contents) Values() int { return len(s.values) }

// Close closes the source.
func (s *Contents) Close() error { return s.close() }
