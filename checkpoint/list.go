package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

// The states of a checkpoint on disk, as List finds them without reading data.
const (
	StateCommitted  = "committed"  // the manifest is good and every shard has its size
	StatePartial    = "partial"    // no manifest: in progress, or left by an attempt that died
	StateBroken     = "broken"     // the manifest is damaged, a shard is missing or cut short, or it was renamed .broken
	StateNewer      = "newer"      // committed by a newer program, in a format this one cannot read
	StateSuperseded = "superseded" // committed, but a later attempt went on from an earlier step
	StateUnreadable = "unreadable" // the folder, the manifest or a shard cannot be read now: it is left as it is
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

	Run      string             `json:"run"`
	RawBytes int64              `json:"raw_bytes"` // of the tensors
	BaseStep int64              `json:"base_step"` // of the checkpoint that this is a delta of; -1: none
	Metrics  map[string]float64 `json:"metrics,omitempty"`
	Pinned   []string           `json:"pinned,omitempty"` // labels; "" is that of a file PINNED
}

// List returns what is in the folder, oldest first: by step, then by attempt and time of the
// save; nothing where there is no folder. Files and folders that are not checkpoints are passed
// over; one that cannot be read now is listed as such. What is superseded is so for Options.Run.
func (d *Dir) List(ctx context.Context) ([]Info, error) {
	v, err := d.look(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints in %s: %w", d.path, classify(err))
	}
	list := make([]Info, len(v.entries))
	for i, e := range v.entries {
		list[i] = e.info
	}
	return list, nil
}

// describe is the Info of a committed checkpoint whose manifest has so many bytes.
func (d *Dir) describe(folder string, m *manifest.Manifest, size int64) Info {
	info := Info{
		Step: m.Step, Path: filepath.Join(d.path, folder), Bytes: size, World: m.World,
		Committed: true, State: StateCommitted, Attempt: m.Attempt, Created: m.Created,
		Run: m.Run, BaseStep: -1, Metrics: m.Metrics,
	}
	for _, s := range m.Shards {
		info.Bytes += s.Size
		info.RawBytes += s.Raw
	}
	if m.Base != nil {
		info.BaseStep = m.Base.Step
	}
	return info
}

// names lists the checkpoints folder: the folders in it that have a checkpoint's name, and all
// files; nothing where there is none. A link is not a folder.
func (d *Dir) names() (folders, files []string, err error) {
	entries, err := d.fs.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	for _, e := range entries {
		if !e.IsDir() {
			files = append(files, e.Name())
		} else if _, ok := manifest.ParseFolder(e.Name()); ok {
			folders = append(folders, e.Name())
		}
	}
	return folders, files, err
}

// list is the names in a folder.
func (d *Dir) list(path string) ([]string, error) {
	var names []string
	err := again(func() error {
		entries, err := d.fs.ReadDir(path)
		names = make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.Name()
		}
		return err
	})
	return names, err
}

// absent is nil if a file that a lookup did not find is really not there: its folder, listed anew,
// does not have it either, or is gone. ErrStale where it is listed: one of the two answers of a
// network file system is old.
func (d *Dir) absent(path string) error {
	files, err := d.list(filepath.Dir(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && slices.Contains(files, filepath.Base(path)):
		return fmt.Errorf("%w: %s is in its folder's list, and is said not to be there; try again", ErrStale, path)
	}
	return err
}
