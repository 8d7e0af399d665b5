package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/vfs"
)

// OpenManifest opens the checkpoint that another rank has found or committed, from its folder's
// name and the bytes of its manifest as a message brought them. It opens no file: shards are
// opened when they are needed, with bounded patience where this client's view of the folder
// lags behind.
func (d *Dir) OpenManifest(folder string, data []byte) (*Checkpoint, error) {
	c, err := d.parse(folder, data)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", folder, err)
	}
	c.patient = true
	return c, nil
}

// parse makes a checkpoint of the bytes of the manifest of a folder.
func (d *Dir) parse(folder string, data []byte) (*Checkpoint, error) {
	m, err := d.parseManifest(folder, data)
	if err != nil {
		return nil, err
	}
	return d.checkpoint(folder, data, m), nil
}

func (d *Dir) parseManifest(folder string, data []byte) (*manifest.Manifest, error) {
	path := filepath.Join(d.path, folder, manifest.Name)
	name, ok := manifest.ParseFolder(folder)
	if !ok {
		return nil, fmt.Errorf("%q is not the name of a checkpoint's folder", folder)
	}
	m, err := manifest.Parse(data)
	if err != nil {
		return nil, judgeManifest(path, err)
	}
	if m.Step != name.Step {
		return nil, corrupt(path, "it is the manifest of step %d", m.Step)
	}
	return m, nil
}

// openFolder reads the manifest of a folder, and no shard; ErrNone where there is none.
func (d *Dir) openFolder(ctx context.Context, folder string, patient bool) (*Checkpoint, error) {
	path := filepath.Join(d.path, folder, manifest.Name)
	var data []byte
	read := func() (err error) { data, err = d.readFile(path, manifest.MaxBytes); return err }
	var err error
	if patient {
		err = d.retry(ctx, read)
	} else {
		err = again(read)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is not committed in %s", ErrNone, folder, d.path)
	}
	var c *Checkpoint
	if err == nil {
		c, err = d.parse(folder, data)
	}
	if errors.Is(err, ErrCorrupt) && d.foreign(folder) {
		return nil, fmt.Errorf("%w: %s in %s", errForeign, folder, d.path)
	}
	if err != nil {
		return nil, err
	}
	c.patient = patient
	return c, nil
}

// readFile reads a whole file of at most so many bytes; a longer one is corrupt, and so is what is no file.
func (d *Dir) readFile(path string, limit int64) ([]byte, error) {
	f, err := d.fs.Open(path)
	if errors.Is(err, vfs.ErrNotRegular) {
		return nil, corrupt(path, "%v", vfs.ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, corrupt(path, "it is %d bytes long, at most %d are allowed", info.Size(), limit)
	}
	data := make([]byte, info.Size())
	if n, err := f.ReadAt(data, 0); err != nil && (n < len(data) || !errors.Is(err, io.EOF)) {
		if errors.Is(err, io.EOF) {
			return nil, corrupt(path, "it ends at byte %d", n)
		}
		return nil, err
	}
	return data, nil
}
