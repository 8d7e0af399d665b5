package checkpoint

import (
	"context"
	"io"
	"time"

	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// durable is one file of the checkpoints folder while it is written; replace.FileWith uses it as its file system.
type durable struct {
	vfs.FS
	d       *Dir
	ctx     context.Context
	patient bool // another client created the folder, so that it may take a moment to appear here

	writeTime time.Duration // in write(2)
	syncBegan time.Time
	syncTime  time.Duration // sync, close, rename, sync of the folder
}

// writeFile puts a file of the package's own names into its folder as a whole or not at all; it is durable once the error is nil
// (replace.FileWith). On an error the temporary file is removed, under the fence. fill must watch ctx itself.
func (d *Dir) writeFile(ctx context.Context, path string, patient bool, o replace.Options, fill func(io.Writer) error) (*durable, error) {
	w := &durable{FS: d.fs, d: d, ctx: ctx, patient: patient}
	err := replace.FileWith(context.WithoutCancel(ctx), w, path, o, fill)
	if err == nil {
		w.syncTime = d.now().Sub(w.syncBegan)
	}
	return w, err
}

// Create creates a file. If the folder may take a moment to appear, Create waits for it.
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

// timedFile measures where the time of a write goes.
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

// discard removes a file of a save that did not succeed. If that fails, or the attempt is fenced,
// a later attempt sweeps it. The error is only logged, because the save's own error says more.
func (d *Dir) discard(path string) {
	if err := d.remove(path); err != nil {
		d.log.Warn("a file of an unfinished save cannot be removed", "path", path, "err", err)
	}
}
