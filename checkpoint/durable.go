package checkpoint

import (
	"context"
	"io"
	"time"

	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// durable is one file of the checkpoints folder on its way to the disk: what replace.FileWith sees of the file system.
type durable struct {
	vfs.FS
	d       *Dir
	ctx     context.Context
	patient bool // the file's folder is another client's, and may take a moment to show

	writeTime time.Duration // in write(2)
	syncBegan time.Time
	syncTime  time.Duration // sync, close, rename, sync of the folder
}

// writeFile puts a file of the package's own names into its folder so that it is there whole or not at all, and durably once the error is
// nil (replace.FileWith). On an error the temporary file is removed, under the fence. fill looks at ctx.
func (d *Dir) writeFile(ctx context.Context, path string, patient bool, o replace.Options, fill func(io.Writer) error) (*durable, error) {
	w := &durable{FS: d.fs, d: d, ctx: ctx, patient: patient}
	err := replace.FileWith(context.WithoutCancel(ctx), w, path, o, fill)
	if err == nil {
		w.syncTime = d.now().Sub(w.syncBegan)
	}
	return w, err
}

// Create is the file system's. Where the folder may take a moment to show it waits.
func (w *durable) Create(name string) (f vfs.File, err error) {
	create := func() error { f, err = w.FS.Create(name); return err }
	if w.patient {
		err = w.d.retry(w.ctx, create)
	} else {
		err = create()
	}
	if err != nil {
		return nil, err
	}
	return &timedFile{File: f, w: w}, nil
}

// Remove removes the temporary file of a write that has failed.
func (w *durable) Remove(name string) error {
	w.d.discard(name)
	return nil
}

// timedFile takes down where the time goes.
type timedFile struct {
	vfs.File
	w *durable
}

func (f *timedFile) Write(p []byte) (int, error) {
	defer f.w.writing(f.w.d.now())
	return f.File.Write(p)
}

func (f *timedFile) StartWriteback(offset, n int64) {
	defer f.w.writing(f.w.d.now())
	f.File.StartWriteback(offset, n)
}

func (f *timedFile) Sync() error {
	f.w.syncBegan = f.w.d.now()
	return f.File.Sync()
}

func (w *durable) writing(began time.Time) { w.writeTime += w.d.now().Sub(began) }

// discard removes a file that a save that did not succeed has left. Where that fails, or the
// attempt is fenced, it stays for a later attempt to sweep; the save's own error says more.
func (d *Dir) discard(path string) {
	if err := d.remove(path); err != nil {
		d.log.Warn("leftover of an unfinished save stays", "path", path, "err", err)
	}
}
