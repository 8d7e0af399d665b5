package checkpoint

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// staleFS is a file system whose first handle of a shard goes stale after some reads.
type staleFS struct {
	vfs.FS
	opens, open *atomic.Int64
}

type staleFile struct {
	vfs.File
	reads *atomic.Int64 // reads left; nil means that the handle never goes stale
	open  *atomic.Int64
}

func (f staleFS) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil || !strings.Contains(name, "shard-") {
		return file, err
	}
	f.open.Add(1)
	out := staleFile{File: file, open: f.open}
	if f.opens.Add(1) == 1 {
		out.reads = new(atomic.Int64)
		out.reads.Store(4) // the header, the table, the trailer and a chunk
	}
	return out, nil
}

func (f staleFile) ReadAt(p []byte, off int64) (int, error) {
	if f.reads != nil && f.reads.Add(-1) < 0 {
		return 0, syscall.ESTALE
	}
	return f.File.ReadAt(p, off)
}

func (f staleFile) Close() error {
	f.open.Add(-1)
	return f.File.Close()
}

// Read and Verify replace a stale handle once for all readers, and close it.
func TestStaleHandleIsReplacedOnce(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	const n = 6 * spanBytes
	data := make([]byte, n)
	save(t, openDir(t, Options{FS: m, Codec: "none"}),
		&State{Step: 1, World: 1, Tensors: []Tensor{{Name: "a", DType: "uint8", Shape: []int{n}, Data: data}}})
	for name, read := range map[string]func(c *Checkpoint) error{
		"Read":   func(c *Checkpoint) error { return c.Read(t.Context(), []Target{{Name: "a", Data: make([]byte, n)}}) },
		"Verify": func(c *Checkpoint) error { return c.Verify(t.Context()) },
	} {
		fsys := staleFS{m, new(atomic.Int64), new(atomic.Int64)}
		c, err := openDir(t, Options{FS: fsys, Workers: 3}).Find(t.Context(), 1)
		must(t, err)
		if err := read(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if opens, open := fsys.opens.Load(), fsys.open.Load(); opens != 2 || open != 1 {
			t.Errorf("%s: opened %d times, and %d are open", name, opens, open)
		}
		must(t, c.Close())
		if open := fsys.open.Load(); open != 0 {
			t.Errorf("%s: %d are open after Close", name, open)
		}
	}
}

// If a checkpoint has more shards than may stay open, every shard is closed after its use.
func TestManyShardsAreClosed(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Attempt: 1})
	c, err := split(t, d, testState(5, 0), maxOpen+3, nil, Commit{})
	must(t, err)
	must(t, c.Close())
	fsys := staleFS{m, new(atomic.Int64), new(atomic.Int64)}
	fsys.opens.Store(1) // so no handle goes stale
	c, err = openDir(t, Options{FS: fsys}).Find(t.Context(), 5)
	must(t, err)
	wantState(t, all(t, c), testState(5, 0))
	if open := fsys.open.Load(); open != 0 {
		t.Errorf("%d are open", open)
	}
}
