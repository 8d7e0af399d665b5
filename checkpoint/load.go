package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
)

// Latest loads the newest committed checkpoint whose every byte is as it was written. One that is
// corrupt is logged (Warn: path, shard, tensor, what) and the one before it is tried; nothing is
// renamed or removed. ErrNone means that none was ever committed, ErrCorrupt that all that were
// are corrupt. An I/O error, a lack of permission and ErrFormatTooNew end the search: what cannot
// be read now is not bad, and going on from an older one would silently throw work away.
func (d *Dir) Latest(ctx context.Context) (*State, Info, error) {
	steps, err := d.steps()
	if err != nil {
		return nil, Info{}, fmt.Errorf("look for checkpoints in %s: %w", d.path, classify(err))
	}
	var newestBad error
	for _, step := range slices.Backward(steps) {
		s, info, err := d.load(ctx, step)
		switch {
		case err == nil:
			return s, info, nil
		case errors.Is(err, ErrNone):
			continue
		case !errors.Is(err, ErrCorrupt):
			return nil, Info{}, fmt.Errorf("load checkpoint of step %d: %w", step, err)
		}
		d.warnCorrupt(step, err)
		d.markBad(step, true)
		if newestBad == nil {
			newestBad = err
		}
	}
	if newestBad != nil {
		return nil, Info{}, fmt.Errorf("every checkpoint in %s is corrupt; the newest: %w", d.path, newestBad)
	}
	return nil, Info{}, fmt.Errorf("%w in %s", ErrNone, d.path)
}

func (d *Dir) warnCorrupt(step int64, err error) {
	args := []any{"step", step}
	if bad, ok := errors.AsType[*CorruptError](err); ok {
		args = append(args, "path", filepath.Dir(bad.Path), "shard", filepath.Base(bad.Path), "tensor", bad.Tensor, "what", bad.Detail)
	}
	d.log.Warn("checkpoint is corrupt: using the one before it", args...)
}

// Load loads the checkpoint of a step, all of it verified; ErrNone where it is not committed.
func (d *Dir) Load(ctx context.Context, step int64) (*State, error) {
	s, _, err := d.load(ctx, step)
	if err != nil {
		return nil, fmt.Errorf("load checkpoint of step %d: %w", step, err)
	}
	return s, nil
}

// Verify reads the whole checkpoint of a step and checks all of it, in little memory.
func (d *Dir) Verify(ctx context.Context, step int64) error {
	buf := make([]byte, chunkBytes)
	_, err := d.read(ctx, step, func(m *manifest, shard int) chunkSink {
		return func(_ int, _, n int64) []byte { return buf[:n] }
	})
	if err != nil {
		return fmt.Errorf("verify checkpoint of step %d: %w", step, err)
	}
	return nil
}

func (d *Dir) load(ctx context.Context, step int64) (*State, Info, error) {
	s := &State{}
	info, err := d.read(ctx, step, func(m *manifest, shard int) chunkSink {
		if shard == 0 {
			*s = m.state() // a second try starts anew
		}
		return s.fill(m, shard)
	})
	if err != nil {
		return nil, Info{}, err
	}
	return s, info, nil
}

// state is what a manifest says about a state, without the data of the tensors.
func (m *manifest) state() State {
	s := State{Step: m.Step, World: m.World, Values: m.Values, Tensors: make([]Tensor, len(m.Tensors))}
	for i, t := range m.Tensors {
		s.Tensors[i] = Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: []byte{}}
	}
	return s
}

// fill allocates the tensors of a shard, whose lengths have been checked against the file, and
// hands out their bytes.
func (s *State) fill(m *manifest, shard int) chunkSink {
	var data [][]byte
	for i, t := range m.Tensors {
		if t.Shard == shard {
			s.Tensors[i].Data = make([]byte, t.Length)
			data = append(data, s.Tensors[i].Data)
		}
	}
	return func(tensor int, offset, n int64) []byte { return data[tensor][offset : offset+n] }
}

// read reads a checkpoint into the sinks, one per shard, that open gives once a shard's lengths
// are known to fit. A file that vanishes or goes stale in between means, at first, that the step
// has just been replaced or pruned: it is read once more from the manifest on.
func (d *Dir) read(ctx context.Context, step int64, open func(m *manifest, shard int) chunkSink) (Info, error) {
	info, err := d.readOnce(ctx, step, open)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE) {
		info, err = d.readOnce(ctx, step, open)
	}
	if missing, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrNotExist) {
		return Info{}, corrupt(missing.Path, "it is missing")
	}
	return info, classify(err)
}

func (d *Dir) readOnce(ctx context.Context, step int64, open func(m *manifest, shard int) chunkSink) (Info, error) {
	m, size, err := d.readManifest(filepath.Join(d.stepPath(step), manifestName), step)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, fmt.Errorf("%w: step %d is not committed in %s", ErrNone, step, d.path)
	}
	if err != nil {
		return Info{}, err
	}
	for i := range m.Shards {
		if err := d.readShard(ctx, m, i, open); err != nil {
			return Info{}, err
		}
	}
	return d.describe(m, size), nil
}

func (d *Dir) readShard(ctx context.Context, m *manifest, i int, open func(m *manifest, shard int) chunkSink) error {
	r, err := d.openShard(m, i)
	if err != nil {
		return err
	}
	defer r.file.Close()
	return r.readChunks(ctx, open(m, i))
}
