package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/replace"
)

// Commit is what rank 0 records about a draft whose shards are durable.
type Commit struct {
	World   int // ranks that trained, at least 1
	Values  map[string]json.RawMessage
	Metrics map[string]float64
	Tensors []TensorPlan
	Shards  []ShardInfo // by number
	Base    *Checkpoint // the full checkpoint whose bytes were the pieces' Base; nil for a full checkpoint
}

// TensorPlan is a tensor and the places of its bytes: extents in the order of Start that cover it. A tensor
// without bytes has no extents.
type TensorPlan struct {
	Name, DType string
	Shape       []int
	Extents     []Extent
}

// Extent says that Length bytes from Start of a tensor are those from Offset of a shard's raw bytes.
// Offset is the total length of the pieces before it in that shard.
type Extent struct {
	Shard                 int
	Offset, Start, Length int64
}

// Commit asks the fence, writes the manifest durably and then applies Options.Keep. The context can
// cancel it until the manifest is committed. Commit returns ErrFenced if a later attempt has saved the
// step, or has recorded that it resumes from an earlier one.
//
// After an error nothing is committed, with two exceptions. The rename of the manifest, or the sync
// after it, may fail although the rename has happened: the checkpoint is then valid, and Abort leaves
// it alone. And if an ErrFenced comes with a Checkpoint, the commit stands, but this attempt was
// superseded before it could remove old checkpoints. Other errors while removing old checkpoints are
// logged, not returned.
func (dr *Draft) Commit(ctx context.Context, c Commit) (*Checkpoint, error) {
	d := dr.d
	d.changing.Lock()
	defer d.changing.Unlock()
	m, data, err := dr.record(ctx, c)
	if err == nil {
		err = dr.writeManifest(ctx, data, c.Base)
	}
	if err != nil {
		return nil, fmt.Errorf("commit checkpoint of step %d in %s: %w", dr.step, dr.path(), classify(err))
	}
	dr.release()
	committed := d.checkpoint(dr.folder, data, m)
	d.cache.addManifest(dr.folder, cachedManifest{size: int64(len(data)), written: true, m: withoutTensors(m), crc: manifest.CRC(data)})
	if _, err := d.prune(context.WithoutCancel(ctx), d.opt.Keep, dr.folder); errors.Is(err, ErrFenced) {
		return committed, fmt.Errorf("remove old checkpoints after step %d in %s: %w", dr.step, d.path, err)
	} else if err != nil {
		d.log.Warn("old checkpoints are kept: they could not be removed", "path", d.path, "err", classify(err))
	}
	return committed, nil
}

// record makes the manifest, and parses it again as readers will.
func (dr *Draft) record(ctx context.Context, c Commit) (*manifest.Manifest, []byte, error) {
	m := dr.d.manifestOf(dr.tag, dr.step, c)
	var err error
	if m.Created, err = dr.laterThanOthers(ctx, m.Created); err != nil {
		return nil, nil, err
	}
	for i, s := range c.Shards {
		if s.Delta && c.Base == nil {
			return nil, nil, fmt.Errorf("shard %d may hold differences, but the commit names no base", i)
		}
	}
	for i, s := range m.Shards {
		if want := dr.tag.ShardName(i, len(m.Shards)); s.File != want {
			return nil, nil, fmt.Errorf("shard %d has the file name %q, not %q", i, s.File, want)
		}
	}
	if c.Base != nil {
		m.Base = &manifest.Base{Step: c.Base.Step(), Folder: c.Base.folder, CRC: manifest.CRC(c.Base.data)}
		if err := sameLayout(m, c.Base.m); err != nil {
			return nil, nil, fmt.Errorf("the base, step %d: %w", c.Base.Step(), err)
		}
	}
	data, m, err := m.EncodeAndParse()
	return m, data, err
}

// manifestOf returns the manifest of a commit, without the base.
func (d *Dir) manifestOf(tag manifest.Tag, step int64, c Commit) *manifest.Manifest {
	m := &manifest.Manifest{
		Run: d.opt.Run, Attempt: tag.Attempt, Step: step, World: c.World,
		Created: d.now().UTC(), Program: d.program,
		Values: c.Values, Metrics: c.Metrics,
	}
	for _, t := range c.Tensors {
		tensor := manifest.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape}
		for _, e := range t.Extents {
			tensor.Pieces = append(tensor.Pieces, manifest.Piece(e))
		}
		m.Tensors = append(m.Tensors, tensor)
	}
	for _, s := range c.Shards {
		m.Shards = append(m.Shards, manifest.Shard{File: s.File, Size: s.Size, Raw: s.Raw, CRC: manifest.Checksum(s.CRC)})
	}
	return m
}

// writeManifest writes the commit record. From the attempt to rename it the draft counts as finalized,
// because the commit may have happened even if there is an error.
func (dr *Draft) writeManifest(ctx context.Context, data []byte, base *Checkpoint) error {
	mayCommit := func() error {
		if base != nil {
			if err := base.stillThere(); err != nil {
				return fmt.Errorf("the base: %w", err)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := dr.stillCounts(ctx); err != nil {
			return err
		}
		if err := dr.d.fence(); err != nil {
			return err
		}
		dr.mu.Lock()
		defer dr.mu.Unlock()
		if dr.finalized {
			return errors.New("the draft has been committed or aborted already")
		}
		dr.finalized = true
		return nil
	}
	o := replace.Options{Temp: dr.tag.ManifestTmp(), New: true, BeforeRename: mayCommit}
	_, err := dr.d.writeFile(ctx, filepath.Join(dr.path(), manifest.Name), false, o, replace.Bytes(data))
	return err
}

// laterThanOthers returns now, or a later time if this attempt has a save of the same step that would
// seem newer because the clock was set back. It returns ErrFenced if a later attempt has saved the step.
func (dr *Draft) laterThanOthers(ctx context.Context, now time.Time) (time.Time, error) {
	folders, _, err := dr.d.names()
	if err != nil {
		dr.d.log.Warn("other saves of the step cannot be listed: the clock decides which is newer", "path", dr.path(), "err", err)
		return now, nil
	}
	for _, name := range folders {
		folder, _ := manifest.ParseFolder(name)
		if folder.Step != dr.step || folder.Broken || name == dr.folder {
			continue
		}
		other, err := dr.d.openFolder(ctx, name, false)
		switch {
		case err != nil || other.m.Run != dr.d.opt.Run:
		case other.m.Attempt > dr.tag.Attempt:
			return now, supersededError("attempt %d of the run has saved this step already", other.m.Attempt)
		case other.m.Attempt == dr.tag.Attempt && !now.After(other.m.Created):
			now = other.m.Created.Add(time.Nanosecond)
		}
	}
	return now, nil
}

// stillCounts returns ErrFenced if a later attempt has recorded that it resumes from an earlier step.
func (dr *Draft) stillCounts(ctx context.Context) error {
	_, files, err := dr.d.names()
	var later lineage
	if err == nil {
		files = slices.DeleteFunc(files, func(name string) bool {
			attempt, run, ok := manifest.ParseRecordName(name)
			return !ok || attempt <= dr.tag.Attempt || run != dr.d.run
		})
		later, err = dr.d.readRecords(ctx, files)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		dr.d.log.Warn("records of later attempts cannot be read: they may supersede this save",
			"path", filepath.Join(dr.d.path, dr.folder), "err", err)
		return nil
	}
	by, yes := manifest.Superseded(later.of(dr.d.opt.Run), dr.tag.Attempt, dr.step, "")
	switch {
	case yes && by.ResumedStep < 0:
		return supersededError("attempt %d of the run has begun, without a checkpoint", by.Attempt)
	case yes:
		return supersededError("attempt %d of the run has begun, from step %d", by.Attempt, by.ResumedStep)
	}
	return nil
}

func supersededError(format string, args ...any) error {
	return fmt.Errorf("%w: %s: its state supersedes what this attempt saves; end this one, or start it as a later attempt", ErrFenced,
		fmt.Sprintf(format, args...))
}

// sameLayout returns an error if base cannot be the base of delta. A base is a full checkpoint with the
// same tensors in the same places.
func sameLayout(delta, base *manifest.Manifest) error {
	if base.Base != nil {
		return errors.New("it is itself a delta")
	}
	if base.Step > delta.Step {
		return fmt.Errorf("its step is %d, after step %d", base.Step, delta.Step)
	}
	same := slices.EqualFunc(delta.Tensors, base.Tensors, func(a, b manifest.Tensor) bool {
		return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && slices.Equal(a.Pieces, b.Pieces)
	})
	if !same || len(delta.Shards) != len(base.Shards) {
		return errors.New("it has other tensors, or they are spread over the shards in another way")
	}
	return nil
}

// stillThere reads the manifest again and returns an error if c has been removed or replaced.
func (c *Checkpoint) stillThere() error {
	now, err := c.d.readFile(c.manifestPath(), manifest.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		if err := c.d.absent(c.manifestPath()); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s has been removed", ErrNone, c.path())
	}
	if err == nil && !bytes.Equal(now, c.data) {
		err = corrupt(c.manifestPath(), "it has changed since it was opened")
	}
	return err
}
