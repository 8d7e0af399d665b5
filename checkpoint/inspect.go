package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
)

// inspect looks at one folder, and not at its shards; nil where there is none, or only a foreign one. What cannot be read
// is an entry, too: one folder that is not readable must not hide the others.
func (d *Dir) inspect(ctx context.Context, name string, quick bool) *entry {
	path := filepath.Join(d.path, name)
	folder, _ := manifest.ParseFolder(name)
	e := &entry{name: name, info: Info{Step: folder.Step, Path: path, State: StatePartial, BaseStep: -1}}
	var err error
	e.files, err = d.list(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && slices.Contains(e.files, manifest.Name) {
		err = d.inspectManifest(e, quick)
	}
	if err != nil {
		d.unreadable(ctx, e, err)
	} else if (e.info.State == StatePartial || e.info.State == StateBroken) && !folder.Broken && d.foreignFiles(name, e.files) {
		return nil
	}
	if folder.Broken {
		e.info.State, e.info.Committed = StateBroken, false
	}
	for _, file := range e.files {
		if label, ok := manifest.ParsePin(file); ok {
			e.info.Pinned = append(e.info.Pinned, label)
		}
	}
	return e
}

func (d *Dir) unreadable(ctx context.Context, e *entry, err error) {
	if ctx.Err() == nil { // else it may well be readable
		d.log.Warn("checkpoint cannot be read: it is left as it is", "path", e.info.Path, "err", classify(err))
	}
	e.err, e.info.State, e.info.Committed = err, StateUnreadable, false
}

// inspectManifest fills in what the manifest of an entry says.
func (d *Dir) inspectManifest(e *entry, quick bool) error {
	path := filepath.Join(e.info.Path, manifest.Name)
	var info fs.FileInfo // of a quick look
	if quick {
		err := again(func() (err error) { info, err = d.fs.Stat(path); return err })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if was := d.known.manifest(e.name, info); was != nil {
			e.m, e.crc, e.checked = was.m, was.crc, was.whole
			e.info = d.describe(e.name, was.m, was.size)
			return nil
		}
	}
	var data []byte
	err := again(func() (err error) { data, err = d.readFile(path, manifest.MaxBytes); return err })
	var m *manifest.Manifest
	if err == nil {
		m, err = d.parseManifest(e.name, data)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.inspectGone(e, path)
	case errors.Is(err, ErrFormatTooNew):
		e.err, e.info.State = err, StateNewer
		return nil
	case errors.Is(err, ErrCorrupt):
		e.err, e.info.State = err, StateBroken
		return nil
	case err != nil:
		return err
	}
	e.m, e.crc = slim(m), manifest.CRC(data)
	e.info = d.describe(e.name, m, int64(len(data)))
	if info != nil && info.Size() == int64(len(data)) {
		d.known.addManifest(e.name, knownManifest{size: info.Size(), modTime: info.ModTime(), m: e.m, crc: e.crc})
	}
	return nil
}

// inspectGone is about a manifest that the folder has listed, and that is said not to be there: it
// was removed in between, or it was not.
func (d *Dir) inspectGone(e *entry, path string) error {
	if err := d.absent(path); err != nil {
		return err
	}
	var err error
	if e.files, err = d.list(e.info.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
