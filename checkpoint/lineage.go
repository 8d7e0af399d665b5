package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"ddpbatch/checkpoint/internal/manifest"
)

// Begin records, durably and under the fence, what this attempt goes on from (nil: from
// nothing), before it trains. From then on what earlier attempts saved at later steps is
// superseded, even what a zombie of one has yet to save. A second Begin of an attempt, after a
// restart within it, changes the record only to an earlier step: what was superseded stays so.
func (d *Dir) Begin(ctx context.Context, from *Checkpoint) error {
	record := manifest.Record{Run: d.opt.Run, Attempt: d.opt.Attempt, ResumedStep: -1, Created: d.now().UTC()}
	if from != nil {
		record.ResumedStep, record.ResumedFolder = from.Step(), from.folder
	}
	if err := d.begin(ctx, record); err != nil {
		return fmt.Errorf("record what attempt %d goes on from, in %s: %w", d.opt.Attempt, d.path, classify(err))
	}
	return nil
}

func (d *Dir) begin(ctx context.Context, record manifest.Record) error {
	if record.Attempt < 1 {
		return errors.New("attempts are numbered from 1")
	}
	data, err := record.Encode()
	if err != nil {
		return err
	}
	if err := d.fence(); err != nil {
		return err
	}
	if err := d.makeRoot(); err != nil {
		return err
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	name := manifest.RecordName(record.Attempt, d.run)
	before, err := d.readRecord(name)
	switch {
	case err == nil && before.Run != record.Run:
		return fmt.Errorf("%s is the record of the run %q", name, before.Run)
	case err == nil && before.ResumedStep <= record.ResumedStep:
		return d.fs.SyncDir(d.path) // it may be there from before its sync
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrCorrupt):
	default:
		return err
	}
	mayRename := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return d.fence()
	}
	file := &durable{d: d, dir: d.path, tmp: d.tag().RecordTmp(), name: name, beforeRename: mayRename}
	return file.write(ctx, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// readRecord reads the lineage record of that file name.
func (d *Dir) readRecord(name string) (manifest.Record, error) {
	path := filepath.Join(d.path, name)
	var data []byte
	err := again(func() (err error) { data, err = d.readFile(path, manifest.MaxRecordBytes); return err })
	if err != nil {
		return manifest.Record{}, err
	}
	record, err := manifest.ParseRecord(data)
	if err != nil {
		return manifest.Record{}, judgeManifest(path, err)
	}
	if name != manifest.RecordName(record.Attempt, runCRC(record.Run)) {
		return manifest.Record{}, corrupt(path, "it is the record of attempt %d of the run %q", record.Attempt, record.Run)
	}
	return record, nil
}

// runCRC stands for a run in file names.
func runCRC(run string) uint32 { return uint32(manifest.CRC([]byte(run))) }

// lineage is the records of a folder, of all runs in it.
type lineage []manifest.Record

// readLineage reads the records among the names of the folder.
func (d *Dir) readLineage(names []string) (lineage, error) {
	return d.readRecords(names, func(int, uint32) bool { return true })
}

// readRecords reads those of attempts and runs that are wanted. One that is damaged is passed
// over loudly: without it a checkpoint may count that should not, but none is lost.
func (d *Dir) readRecords(names []string, wanted func(attempt int, run uint32) bool) (lineage, error) {
	var records lineage
	for _, name := range names {
		if attempt, run, ok := manifest.ParseRecordName(name); !ok || !wanted(attempt, run) {
			continue
		}
		record, err := d.readRecord(name)
		switch {
		case err == nil:
			records = append(records, record)
		case errors.Is(err, fs.ErrNotExist):
			return nil, unseen(filepath.Join(d.path, name)) // nobody removes one
		case errors.Is(err, ErrCorrupt):
			d.log.Warn("record of an attempt is damaged: passing it over", "path", filepath.Join(d.path, name), "err", err)
		default:
			return nil, err
		}
	}
	return records, nil
}

func (l lineage) of(run string) []manifest.Record {
	var own []manifest.Record
	for _, r := range l {
		if r.Run == run {
			own = append(own, r)
		}
	}
	return own
}

// superseded says whether a later attempt of its run has given up the checkpoint in a folder, and
// which. For a run that looks at a checkpoint of another one, its own attempts are all later.
func (l lineage) superseded(m *manifest.Manifest, folder, run string) (by manifest.Record, yes bool) {
	by, yes = manifest.Superseded(l.of(m.Run), m.Attempt, m.Step, folder)
	if !yes && m.Run != run {
		by, yes = manifest.Superseded(l.of(run), 0, m.Step, folder)
	}
	return by, yes
}
