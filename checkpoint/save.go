package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Save commits a checkpoint of s, and removes what the retention no longer wants. When it returns
// nil the checkpoint is durable. It only reads s.
//
// A step that exists already is replaced in one rename. After an error nothing is committed, with
// two exceptions: the rename of the manifest, or the sync after it, may fail although the rename
// has happened (the checkpoint is then a valid one); and an error that wraps ErrFenced beside an
// Info whose Committed is true means that the commit stands but this attempt was superseded
// before it could tidy up. Other trouble with tidying up is logged, not returned. The context
// counts until the commit.
func (d *Dir) Save(ctx context.Context, s *State) (Info, error) {
	if err := s.validate(); err != nil {
		return Info{}, fmt.Errorf("save checkpoint: %w", err)
	}
	m, err := d.draft(s)
	if err != nil {
		return Info{}, fmt.Errorf("save checkpoint of step %d: %w", s.Step, err)
	}
	d.saving.Lock()
	defer d.saving.Unlock()
	size, err := d.commit(ctx, s, m)
	if err != nil {
		return Info{}, fmt.Errorf("save checkpoint of step %d in %s: %w", s.Step, d.path, classify(err))
	}
	d.markBad(s.Step, false)
	info := d.describe(m, size)
	if err := d.retain(m); errors.Is(err, ErrFenced) {
		return info, fmt.Errorf("tidy up after step %d in %s: %w", s.Step, d.path, err)
	} else if err != nil {
		d.log.Warn("old checkpoints stay", "path", d.path, "err", classify(err))
	}
	return info, nil
}

// draft makes the manifest of a state, less what is known only once the shard is written, and
// proves that it can be read back: what cannot is refused before anything is written.
func (d *Dir) draft(s *State) (*manifest, error) {
	header, tensors := planShard(s)
	m := &manifest{
		Format: formatName, Version: formatVersion,
		Run: d.opt.Run, Attempt: d.opt.Attempt, Step: s.Step, World: s.World,
		Created: d.now().UTC(), Program: d.program,
		Values: s.Values, Tensors: tensors,
		Shards: []shardRecord{{File: tag{attempt: d.opt.Attempt, run: d.run}.shardName(0, 1), Size: maxShardBytes, Raw: int64(header.raw)}},
	}
	data, err := m.encode()
	if err != nil {
		return nil, err
	}
	if len(data) > maxManifestBytes {
		return nil, fmt.Errorf("names and values take %d bytes, at most %d are allowed", len(data), maxManifestBytes)
	}
	if _, err := parseManifest(data); err != nil {
		return nil, fmt.Errorf("the state cannot be recorded: %w", err)
	}
	return m, nil
}

// commit writes the shard, then the manifest, and returns the manifest's size.
func (d *Dir) commit(ctx context.Context, s *State, m *manifest) (int64, error) {
	if err := d.prepare(s.Step); err != nil {
		return 0, err
	}
	t := d.tag()
	m.Shards[0].File = t.shardName(0, 1)
	if err := d.writeTensors(ctx, s, &m.Shards[0]); err != nil {
		d.undo(m)
		return 0, err
	}
	size, tried, err := d.writeManifest(ctx, m, t)
	if err != nil && !tried {
		d.undo(m)
	}
	return size, err
}

// writeTensors writes the only shard, and fills in the rest of its record.
func (d *Dir) writeTensors(ctx context.Context, s *State, record *shardRecord) error {
	enc, err := newEncoder(d.codec)
	if err != nil {
		return err
	}
	header, _ := planShard(s)
	return d.writeFile(d.stepPath(s.Step), record.File+tmpSuffix, record.File, ctx.Err, func(w io.Writer) error {
		size, crc, err := writeShard(ctx, w, header, s.Tensors, enc)
		record.Size, record.CRC = size, checksum(crc)
		return err
	})
}

// writeManifest writes the commit record, and returns its size. Once the rename was tried the
// commit may have happened, whatever error there is.
func (d *Dir) writeManifest(ctx context.Context, m *manifest, t tag) (size int64, tried bool, err error) {
	data, err := m.encode()
	if err != nil {
		return 0, false, err
	}
	mayCommit := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.fence(); err != nil {
			return err
		}
		tried = true
		return nil
	}
	err = d.writeFile(d.stepPath(m.Step), t.manifestTmp(), manifestName, mayCommit, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	return int64(len(data)), tried, err
}

// undo removes the shard of a save that was surely not committed, and the folder where nothing
// else is in it.
func (d *Dir) undo(m *manifest) {
	d.discard(filepath.Join(d.stepPath(m.Step), m.Shards[0].File))
	if err := d.removeStepDir(m.Step); err != nil {
		d.log.Warn("folder of an unfinished save stays", "path", d.stepPath(m.Step), "err", err)
	}
}

// prepare makes the folder of a step.
func (d *Dir) prepare(step int64) error {
	if !d.made {
		if err := d.makeDir(d.path); err != nil {
			return err
		}
		d.made = true
	}
	return d.makeDir(d.stepPath(step))
}
