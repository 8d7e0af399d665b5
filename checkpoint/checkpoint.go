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
	"sync"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/vfs"
)

// Checkpoint is a committed checkpoint that can be read. Its methods are safe for concurrent use, except
// that Close must not run beside another method. Callers must not modify what the methods return.
type Checkpoint struct {
	d       *Dir
	folder  string
	data    []byte // of the manifest
	m       *manifest.Manifest
	byShard [][]manifest.Ref
	byName  map[string]int
	patient bool // a message has announced the files: retry while this client's view of the folder does not show them

	slots []slot // of the shards

	mu   sync.Mutex
	base *Checkpoint // of a delta; nil until it is needed
}

// TensorInfo describes one tensor of a checkpoint.
type TensorInfo struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
}

// Info describes c as List does, but without the pins.
func (c *Checkpoint) Info() Info { return c.d.describe(c.folder, c.m, int64(len(c.data))) }

// Step returns the step that was saved.
func (c *Checkpoint) Step() int64 { return c.m.Step }

// World returns the number of ranks that trained.
func (c *Checkpoint) World() int { return c.m.World }

// Values returns the values of the State or the Commit.
func (c *Checkpoint) Values() map[string]json.RawMessage { return c.m.Values }

// Metrics returns the metrics of the State or the Commit.
func (c *Checkpoint) Metrics() map[string]float64 { return c.m.Metrics }

// Manifest returns the bytes of MANIFEST.json, which other ranks pass to OpenManifest.
func (c *Checkpoint) Manifest() []byte { return c.data }

// Folder returns the name of the checkpoint's folder, without the path.
func (c *Checkpoint) Folder() string { return c.folder }

// Tensors lists the tensors in the order in which they were saved.
func (c *Checkpoint) Tensors() []TensorInfo {
	list := make([]TensorInfo, len(c.m.Tensors))
	for i, t := range c.m.Tensors {
		list[i] = TensorInfo{Name: t.Name, DType: t.DType, Shape: t.Shape, Bytes: bytesOf(t)}
	}
	return list
}

// OpenManifest opens a checkpoint that another rank has found or committed. folder is the name of its
// folder and data the bytes of its manifest, both received in a message. OpenManifest opens no file:
// shards are opened when they are needed, with a bounded number of retries while this client's view of
// the folder lags behind.
func (d *Dir) OpenManifest(folder string, data []byte) (*Checkpoint, error) {
	c, err := d.parse(folder, data)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", folder, err)
	}
	c.patient = true
	return c, nil
}

// openFolder reads the manifest of a folder, but no shard. It returns ErrNone if the folder has no manifest.
func (d *Dir) openFolder(ctx context.Context, folder string, patient bool) (*Checkpoint, error) {
	path := filepath.Join(d.path, folder, manifest.Name)
	var data []byte
	read := func() (err error) { data, err = d.readFile(path, manifest.MaxBytes); return err }
	var err error
	if patient {
		err = d.retry(ctx, read)
	} else {
		err = retryStale(read)
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

// parse returns the checkpoint whose manifest has these bytes.
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
		return nil, corrupt(path, "the manifest is of step %d", m.Step)
	}
	return m, nil
}

// checkpoint returns a Checkpoint for a parsed manifest. It opens no file.
func (d *Dir) checkpoint(folder string, data []byte, m *manifest.Manifest) *Checkpoint {
	c := &Checkpoint{
		d: d, folder: folder, data: data, m: m, byShard: m.ByShard(),
		byName: make(map[string]int, len(m.Tensors)), slots: make([]slot, len(m.Shards)),
	}
	for i, t := range m.Tensors {
		c.byName[t.Name] = i
	}
	return c
}

// bytesOf returns the size of a tensor that has been checked: the bytes that its pieces cover.
func bytesOf(t manifest.Tensor) int64 {
	sum := int64(0)
	for _, p := range t.Pieces {
		sum += p.Length
	}
	return sum
}

func (c *Checkpoint) path() string { return filepath.Join(c.d.path, c.folder) }

func (c *Checkpoint) manifestPath() string { return filepath.Join(c.path(), manifest.Name) }

func (c *Checkpoint) shardPath(i int) string { return filepath.Join(c.path(), c.m.Shards[i].File) }

// readFile reads a whole regular file of at most limit bytes. A longer file is corrupt, and so is anything that is not a regular file.
func (d *Dir) readFile(path string, limit int64) ([]byte, error) {
	data, size, err := vfs.ReadFile(d.fs, path, limit)
	switch {
	case errors.Is(err, vfs.ErrNotRegular):
		return nil, corrupt(path, "%v", vfs.ErrNotRegular)
	case err != nil:
		return nil, err
	case size > limit:
		return nil, corrupt(path, "it is %d bytes long, at most %d are allowed", size, limit)
	case int64(len(data)) < size:
		return nil, corrupt(path, "it ends at byte %d of %d", len(data), size)
	}
	return data, nil
}

// errForeign reports a folder that has a checkpoint's name and none of a checkpoint's files.
var errForeign = fmt.Errorf("%w: this folder was not made by ddpbatch", ErrNone)

// foreign reports whether a folder with a checkpoint's name has nothing to do with this package: it is not empty, no file in it has a name
// that only a save, a removal or a pin gives, and its MANIFEST.json, if any, is not a checkpoint's. Callers skip it if the manifest is
// known to be good. A folder that cannot be read is not foreign.
func (d *Dir) foreign(folder string) bool {
	files, err := d.list(filepath.Join(d.path, folder))
	return err == nil && d.foreignFiles(folder, files)
}

func (d *Dir) foreignFiles(folder string, files []string) bool {
	ours := func(name string) bool {
		_, tagged := manifest.ParseTag(name)
		_, pin := manifest.ParsePin(name)
		return tagged || pin || name == manifest.DeletingName
	}
	if len(files) == 0 || slices.ContainsFunc(files, ours) {
		return false
	}
	if slices.Contains(files, manifest.Name) && !d.otherManifest(filepath.Join(d.path, folder, manifest.Name)) {
		return false
	}
	d.warnOnce("skipping a folder that is not a checkpoint, though it has the name of one", "path",
		filepath.Join(d.path, folder))
	return true
}

// otherManifest reports whether a file does not begin as a checkpoint's manifest does.
func (d *Dir) otherManifest(path string) bool {
	f, err := d.fs.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	head := make([]byte, min(info.Size(), int64(len(manifest.Start))))
	if n, err := f.ReadAt(head, 0); err != nil && n < len(head) {
		return false
	}
	return !bytes.Equal(head, []byte(manifest.Start))
}
