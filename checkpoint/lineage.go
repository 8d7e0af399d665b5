package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/replace"
)

// Begin records what this attempt resumes from (nil: it begins from nothing), durably and under the
// fence. It must be called before training. From then on what earlier attempts saved at later steps is
// superseded, even what a zombie of one has yet to save, and earlier attempts remove nothing. If an
// attempt calls Begin again, after a restart within it, the record changes only to an earlier step:
// what was superseded stays superseded. Begin returns ErrNone if an earlier attempt has removed from,
// and ErrFenced if a later attempt of the run has begun already: then this one must end.
func (d *Dir) Begin(ctx context.Context, from *Checkpoint) (err error) {
	defer explain(&err, "record what attempt %d resumes from, in %s", d.opt.Attempt, d.path)
	record := manifest.Record{Run: d.opt.Run, Attempt: d.opt.Attempt, ResumedStep: -1, Created: d.now().UTC()}
	if from != nil {
		record.ResumedStep, record.ResumedFolder = from.Step(), from.folder
	}
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
	if err := d.noneLater(); err != nil {
		return err
	}
	if err := d.closeGates(ctx); err != nil {
		return err
	}
	if from != nil { // from here on no earlier attempt can remove it
		if err := from.stillThere(); err != nil {
			return err
		}
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	name := manifest.RecordName(record.Attempt, d.run)
	before, err := d.readRecord(name)
	switch {
	case err == nil && before.Run != record.Run:
		return fmt.Errorf("%s is the record of the run %q", name, before.Run)
	case err == nil && before.ResumedStep <= record.ResumedStep:
		return d.fs.SyncDir(d.path) // the record may be there without having been synced
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrCorrupt):
	default:
		return err
	}
	mayRename := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.noneLater(); err != nil {
			return err
		}
		return d.fence()
	}
	o := replace.Options{Temp: d.tag().RecordTmp(), BeforeRename: mayRename}
	_, err = d.writeFile(ctx, filepath.Join(d.path, name), false, o, replace.Bytes(data))
	return err
}

// noneLater returns ErrFenced if a later attempt of this run has begun.
func (d *Dir) noneLater() error {
	later, err := d.firstBegun(d.opt.Attempt + 1)
	if later > 0 {
		err = fmt.Errorf("%w: attempt %d of the run has begun already; end this one, or start it as a later attempt", ErrFenced, later)
	}
	return err
}

// FirstBegun returns the first attempt of this run, from number from on, that has recorded what it resumes from (Begin). That may be this
// attempt. It returns 0 if there is none.
func (d *Dir) FirstBegun(from int) (first int, err error) {
	defer explain(&err, "look for attempts that have begun, in %s", d.path)
	return d.firstBegun(from)
}

func (d *Dir) firstBegun(from int) (first int, err error) {
	_, files, err := d.names()
	for _, name := range files {
		if attempt, run, ok := manifest.ParseRecordName(name); ok && run == d.run && attempt >= from && (first == 0 || attempt < first) {
			first = attempt
		}
	}
	return first, err
}

// GivenUp reports whether a later attempt of this run has resumed from an earlier step than the given one of the given attempt: a save of
// that step that is not committed yet would be superseded at once.
func (d *Dir) GivenUp(ctx context.Context, attempt int, step int64) (yes bool, err error) {
	defer explain(&err, "look at the attempts in %s", d.path)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	_, files, err := d.names()
	if err != nil {
		return false, err
	}
	records, err := d.readLineage(ctx, files, false)
	if err != nil {
		return false, err
	}
	_, yes = manifest.Superseded(records.of(d.opt.Run), attempt, step, "")
	return yes, nil
}

// lineage holds the records of a folder, of all runs in it.
type lineage []manifest.Record

// readLineage reads the records among the names of the folder. If quick, it reads those of this run
// only, and uses cached records of earlier attempts, which no longer change.
func (d *Dir) readLineage(ctx context.Context, names []string, quick bool) (lineage, error) {
	var records lineage
	var unknown []string
	for _, name := range names {
		attempt, run, ok := manifest.ParseRecordName(name)
		if !ok || quick && run != d.run {
			continue
		}
		if r, ok := d.cache.record(name); ok && quick && attempt < d.opt.Attempt {
			records = append(records, r)
		} else {
			unknown = append(unknown, name)
		}
	}
	read, err := d.readRecords(ctx, unknown)
	return append(records, read...), err
}

// readRecords reads records. It skips, with a warning, a record that is damaged, or one of another run that
// cannot be read: without it a superseded checkpoint may seem current, but none is lost.
func (d *Dir) readRecords(ctx context.Context, names []string) (lineage, error) {
	read := make(lineage, len(names)) // skipped records stay empty
	err := inParallel(ctx, openAtOnce, numbers(len(names)), func(_ context.Context, i int) error {
		path := filepath.Join(d.path, names[i])
		_, run, _ := manifest.ParseRecordName(names[i])
		record, err := d.readRecord(names[i])
		if errors.Is(err, fs.ErrNotExist) {
			err = d.absent(path) // perhaps somebody has removed it
		}
		switch {
		case err == nil:
			read[i] = record
		case errors.Is(err, ErrCorrupt):
			d.warnOnce("record of an attempt is damaged: skipping it", "path", path, "err", err)
		case run != d.run:
			d.warnOnce("record of another run cannot be read: skipping it", "path", path, "err", classify(err))
		default:
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	read = slices.DeleteFunc(read, func(r manifest.Record) bool { return r.Attempt == 0 })
	for _, r := range read {
		d.cache.addRecord(manifest.RecordName(r.Attempt, runCRC(r.Run)), r)
	}
	return read, nil
}

// readRecord reads the lineage record of that file name.
func (d *Dir) readRecord(name string) (manifest.Record, error) {
	path := filepath.Join(d.path, name)
	var data []byte
	err := retryStale(func() (err error) { data, err = d.readFile(path, manifest.MaxRecordBytes); return err })
	if err != nil {
		return manifest.Record{}, err
	}
	record, err := manifest.ParseRecord(data)
	if err != nil {
		return manifest.Record{}, judgeManifest(path, err)
	}
	if name != manifest.RecordName(record.Attempt, runCRC(record.Run)) {
		return manifest.Record{}, corrupt(path, "the record is of attempt %d of the run %q", record.Attempt, record.Run)
	}
	return record, nil
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

// superseded reports whether a later attempt has superseded the checkpoint in a folder, and by which
// record. If run differs from the checkpoint's run, all attempts of run count as later ones.
func (l lineage) superseded(m *manifest.Manifest, folder, run string) (by manifest.Record, yes bool) {
	by, yes = manifest.Superseded(l.of(m.Run), m.Attempt, m.Step, folder)
	if !yes && m.Run != run {
		by, yes = manifest.Superseded(l.of(run), 0, m.Step, folder)
	}
	return by, yes
}

// runCRC returns the number that identifies a run in file names.
func runCRC(run string) uint32 { return uint32(manifest.CRC([]byte(run))) }
