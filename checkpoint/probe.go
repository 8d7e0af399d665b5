package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Space is what Probe finds out about a file system. Free is a hint only: quotas and the single
// servers of a parallel file system fill up earlier.
type Space struct {
	Type  string `json:"type"` // "ext4", "nfs", "lustre", ...; empty where it is not known
	Free  uint64 `json:"free"` // bytes
	Total uint64 `json:"total"`
}

// Probe does, with a small file in the checkpoints folder, all that a save will do: create, write,
// sync, rename, sync of the folder; then it reads the file back and removes it. So what would fail
// at the first save fails before training. name says in errors who tried, such as a host. It
// makes the folder if it is not there.
func (d *Dir) Probe(ctx context.Context, name string) (Space, error) {
	space, err := d.probe(ctx)
	if err != nil {
		return Space{}, fmt.Errorf("%s cannot save in %s: %w", name, d.path, classify(err))
	}
	return space, nil
}

func (d *Dir) probe(ctx context.Context) (Space, error) {
	if err := ctx.Err(); err != nil {
		return Space{}, err
	}
	if err := d.makeRoot(); err != nil {
		return Space{}, err
	}
	tmp, probe := d.tag().ProbeName(), d.tag().ProbeName()
	path := filepath.Join(d.path, probe)
	content := []byte(tmp + "\n" + probe + "\n")
	file := &durable{d: d, dir: d.path, tmp: tmp, name: probe, size: int64(len(content)), beforeRename: ctx.Err}
	if err := file.writeBytes(ctx, content); err != nil {
		return Space{}, err
	}
	got, err := d.readFile(path, int64(len(content)))
	if err == nil && !bytes.Equal(got, content) {
		err = errors.New("what was written reads back as something else")
	}
	// Not under the fence: only this call knows of the file.
	if removing := d.fs.Remove(path); !errors.Is(removing, fs.ErrNotExist) { // which may be the lost answer's
		err = errors.Join(err, removing)
	}
	if err != nil {
		return Space{}, err
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		return Space{}, err
	}
	space, err := d.fs.Space(d.path)
	if err != nil { // it is a hint only: nothing fails for the want of it
		d.log.Debug("room for checkpoints is not known", "path", d.path, "err", err)
		return Space{}, nil
	}
	return Space(space), nil
}
