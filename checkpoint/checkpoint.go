package checkpoint

import (
	"encoding/json"
	"path/filepath"
	"sync"

	"ddpbatch/checkpoint/internal/manifest"
)

// Checkpoint is a committed checkpoint that can be read. Its methods may be called by several
// goroutines, Close when no other runs. What they return is not to be changed.
type Checkpoint struct {
	d       *Dir
	folder  string
	data    []byte // of the manifest
	m       *manifest.Manifest
	byShard [][]manifest.Ref
	byName  map[string]int
	patient bool // a message said that it is there: retry where a view of the folder does not have it yet

	slots []slot // of the shards

	mu   sync.Mutex
	base *Checkpoint // of a delta, once it has been needed
}

// checkpoint is one whose manifest has been parsed. It opens no file.
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

// TensorInfo describes one tensor of a checkpoint.
type TensorInfo struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
}

// Info describes c as List does, less the pins.
func (c *Checkpoint) Info() Info { return c.d.describe(c.folder, c.m, int64(len(c.data))) }

// Step is the step that was saved.
func (c *Checkpoint) Step() int64 { return c.m.Step }

// World is the number of ranks that trained.
func (c *Checkpoint) World() int { return c.m.World }

// Values are those of the State or the Commit.
func (c *Checkpoint) Values() map[string]json.RawMessage { return c.m.Values }

// Metrics are those of the State or the Commit.
func (c *Checkpoint) Metrics() map[string]float64 { return c.m.Metrics }

// Manifest is the bytes of MANIFEST.json, to be sent to other ranks (OpenManifest).
func (c *Checkpoint) Manifest() []byte { return c.data }

// Folder is the name of its folder, without the path.
func (c *Checkpoint) Folder() string { return c.folder }

// Tensors lists what it holds, in the order it was saved.
func (c *Checkpoint) Tensors() []TensorInfo {
	list := make([]TensorInfo, len(c.m.Tensors))
	for i, t := range c.m.Tensors {
		list[i] = TensorInfo{Name: t.Name, DType: t.DType, Shape: t.Shape, Bytes: bytesOf(t)}
	}
	return list
}

// bytesOf is the size of a tensor that has been checked: what its pieces cover.
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
