package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/vfs"
)

// inspect looks at one folder, but not at its shards. It returns nil if the folder does not exist or is foreign. A folder that cannot be
// read is returned, too, so that it does not hide the others.
func (d *Dir) inspect(ctx context.Context, name string, quick bool) *folderInfo {
	path := filepath.Join(d.path, name)
	folder, _ := manifest.ParseFolder(name)
	e := &folderInfo{name: name, info: Info{Step: folder.Step, Path: path, State: StatePartial, BaseStep: -1}}
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

func (d *Dir) unreadable(ctx context.Context, e *folderInfo, err error) {
	if ctx.Err() == nil { // else it may well be readable
		d.log.Warn("checkpoint cannot be read: leaving it as it is", "path", e.info.Path, "err", classify(err))
	}
	e.err, e.info.State, e.info.Committed = err, StateUnreadable, false
}

// inspectManifest fills in what the manifest of a folder says.
func (d *Dir) inspectManifest(e *folderInfo, quick bool) error {
	path := filepath.Join(e.info.Path, manifest.Name)
	var info fs.FileInfo // of a quick look
	if quick {
		err := retryStale(func() (err error) { info, err = d.fs.Stat(path); return err })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if was := d.cache.manifest(e.name, info); was != nil {
			e.m, e.crc, e.checked = was.m, was.crc, was.whole
			e.info = d.describe(e.name, was.m, was.size)
			return nil
		}
	}
	var data []byte
	err := retryStale(func() (err error) { data, err = d.readFile(path, manifest.MaxBytes); return err })
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
	e.m, e.crc = withoutTensors(m), manifest.CRC(data)
	e.info = d.describe(e.name, m, int64(len(data)))
	if info != nil && info.Size() == int64(len(data)) {
		d.cache.addManifest(e.name, cachedManifest{size: info.Size(), modTime: info.ModTime(), m: e.m, crc: e.crc})
	}
	return nil
}

// inspectGone handles a manifest that the folder listed and that could not be opened: either it was
// removed in between, or the lookup is stale.
func (d *Dir) inspectGone(e *folderInfo, path string) error {
	if err := d.absent(path); err != nil {
		return err
	}
	var err error
	if e.files, err = d.list(e.info.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// listsShards reports whether the folder of a committed checkpoint lists all its shards.
func (e *folderInfo) listsShards() bool { return e.m == nil || hasShards(e.m, e.files) }

// hasShards reports whether all shards of a checkpoint are among the files.
func hasShards(m *manifest.Manifest, files []string) bool {
	there := make(map[string]bool, len(files))
	for _, name := range files {
		there[name] = true
	}
	return !slices.ContainsFunc(m.Shards, func(s manifest.Shard) bool { return !there[s.File] })
}

// shardOf is a shard to be checked, and its folder.
type shardOf struct {
	*folderInfo
	shard manifest.Shard
}

// checkShards checks the sizes of the shards in folders that seem whole.
func (d *Dir) checkShards(ctx context.Context, entries []*folderInfo) error {
	var list []shardOf
	var looked []*folderInfo
	for _, e := range entries {
		if e.m == nil || e.info.State != StateCommitted && e.info.State != StateSuperseded {
			continue
		}
		looked = append(looked, e)
		for _, s := range e.m.Shards {
			list = append(list, shardOf{e, s})
		}
	}
	var mu sync.Mutex
	err := inParallel(ctx, openAtOnce, list, func(ctx context.Context, s shardOf) error {
		whole, err := d.inspectShard(s)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil && s.err == nil:
			d.unreadable(ctx, s.folderInfo, err)
		case !whole && s.err == nil:
			s.info.State, s.info.Committed = StateBroken, false
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	for _, e := range looked {
		e.checked = true
		if e.info.State == StateCommitted || e.info.State == StateSuperseded {
			d.cache.markWhole(e.name, e.crc)
		}
	}
	return nil
}

// inspectShard reports whether a shard exists and has its size. A network file system may answer a
// Stat from its cache, so a bad answer is checked by opening the file.
func (d *Dir) inspectShard(s shardOf) (whole bool, err error) {
	path, want := filepath.Join(s.info.Path, s.shard.File), s.shard.Size
	info, err := d.fs.Stat(path)
	if err == nil && info.Size() == want {
		return true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	f, err := d.fs.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, d.absent(path)
	case errors.Is(err, vfs.ErrNotRegular):
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err = f.Stat()
	return err == nil && info.Size() == want, err
}

// manifestCache holds what a Dir has read of files that do not change, so that the retention after a save
// reads only what is new. Searches and lists do not use it.
type manifestCache struct {
	mu        sync.Mutex
	manifests map[string]*cachedManifest // by folder
	records   map[string]manifest.Record // by file name
}

type cachedManifest struct {
	size    int64
	modTime time.Time
	written bool               // by this process, just now: its time is not known yet
	m       *manifest.Manifest // less tensors and values
	crc     manifest.Checksum
	whole   bool // all its shards had their sizes
}

// withoutTensors returns a copy of a manifest with the parts that a look at the folder needs.
func withoutTensors(m *manifest.Manifest) *manifest.Manifest {
	s := *m
	s.Tensors, s.Values = nil, nil
	return &s
}

// manifest returns the cached manifest of a folder if the file is still the one that was read. info is nil
// if the file was not found. If the file system keeps no times, manifest returns nil.
func (c *manifestCache) manifest(folder string, info fs.FileInfo) *cachedManifest {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.manifests[folder]
	if was == nil || info == nil || info.ModTime().Unix() <= 0 || was.size != info.Size() || !was.written &&
		!was.modTime.Equal(info.ModTime()) {
		return nil
	}
	was.modTime, was.written = info.ModTime(), false
	copied := *was
	return &copied
}

func (c *manifestCache) addManifest(folder string, one cachedManifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.manifests[folder] = &one
}

// markWhole records that the shards of a manifest had their sizes.
func (c *manifestCache) markWhole(folder string, crc manifest.Checksum) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.manifests[folder]; one != nil && one.crc == crc {
		one.whole = true
	}
}

// forget removes a folder from the cache.
func (c *manifestCache) forget(folder string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.manifests, folder)
}

// forgetOthers removes all folders but these from the cache.
func (c *manifestCache) forgetOthers(folders []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.manifests, func(name string, _ *cachedManifest) bool { return !slices.Contains(folders, name) })
}

func (c *manifestCache) record(name string) (manifest.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.records[name]
	return r, ok
}

func (c *manifestCache) addRecord(name string, r manifest.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records[name] = r
}
