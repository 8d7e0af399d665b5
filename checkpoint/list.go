package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"
)

// The states of a checkpoint on disk, as List finds them without reading data.
const (
	StateCommitted = "committed" // the manifest is good and every shard has its size
	StatePartial   = "partial"   // no manifest: in progress, or left by an attempt that died
	StateBroken    = "broken"    // the manifest is damaged, or a shard is missing or cut short
	StateNewer     = "newer"     // committed by a newer program, in a format this one cannot read
)

// Info describes a checkpoint on disk.
type Info struct {
	Step      int64     `json:"step"`
	Path      string    `json:"path"`      // its folder
	Bytes     int64     `json:"bytes"`     // of manifest and shards, on disk
	World     int       `json:"world"`     // this and the rest are zero where no manifest can be read
	Committed bool      `json:"committed"` // State is "committed"
	State     string    `json:"state"`     // one of the State constants
	Attempt   int       `json:"attempt"`
	Created   time.Time `json:"created"`
}

// List returns what is in the folder, by step, oldest first; nothing where there is no folder.
// Files and folders that are not checkpoints are passed over.
func (d *Dir) List(ctx context.Context) ([]Info, error) {
	steps, err := d.steps()
	if err != nil {
		return nil, fmt.Errorf("list checkpoints in %s: %w", d.path, classify(err))
	}
	list := make([]Info, 0, len(steps))
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		info, _, err := d.inspect(step)
		if err != nil {
			return nil, fmt.Errorf("list checkpoints in %s: %w", d.path, classify(err))
		}
		list = append(list, info)
	}
	return list, nil
}

// steps returns the steps that have a folder, ascending.
func (d *Dir) steps() ([]int64, error) {
	entries, err := d.fs.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var steps []int64
	for _, entry := range entries {
		if step, ok := parseStepName(entry.Name()); ok && entry.IsDir() {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return steps, nil
}

// inspect finds the state of a step from its manifest and the sizes of its shards. The manifest
// is nil where it cannot be read.
func (d *Dir) inspect(step int64) (Info, *manifest, error) {
	dir := d.stepPath(step)
	info := Info{Step: step, Path: dir}
	m, size, err := d.readManifest(filepath.Join(dir, manifestName), step)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		info.State = StatePartial
		return info, nil, nil
	case errors.Is(err, ErrFormatTooNew):
		info.State = StateNewer
		return info, nil, nil
	case errors.Is(err, ErrCorrupt):
		info.State = StateBroken
		return info, nil, nil
	case err != nil:
		return info, nil, err
	}
	info = d.describe(m, size)
	for _, s := range m.Shards {
		file, err := d.fs.Stat(filepath.Join(dir, s.File))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return info, nil, err
		}
		if err != nil || file.Size() != s.Size {
			info.State, info.Committed = StateBroken, false
		}
	}
	return info, m, nil
}

// describe is the Info of a committed checkpoint whose manifest has so many bytes.
func (d *Dir) describe(m *manifest, size int64) Info {
	info := Info{
		Step: m.Step, Path: d.stepPath(m.Step), Bytes: size, World: m.World,
		Committed: true, State: StateCommitted, Attempt: m.Attempt, Created: m.Created,
	}
	for _, s := range m.Shards {
		info.Bytes += s.Size
	}
	return info
}
