package checkpoint

import (
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

// known is what a Dir has read of files that nobody changes, so that the retention after a save
// reads only what is new. Searches and lists read anew.
type known struct {
	mu        sync.Mutex
	manifests map[string]*knownManifest  // by folder
	records   map[string]manifest.Record // by file name
}

type knownManifest struct {
	size    int64
	modTime time.Time
	written bool               // by this process, just now: its time is not known yet
	m       *manifest.Manifest // less tensors and values
	crc     manifest.Checksum
	whole   bool // all its shards had their sizes
}

// slim is what a look needs of a manifest.
func slim(m *manifest.Manifest) *manifest.Manifest {
	s := *m
	s.Tensors, s.Values = nil, nil
	return &s
}

// manifest is that of a folder, if the file (nil: it was not found) is still the one that was read.
// Where the file system keeps no times that is not known.
func (k *known) manifest(folder string, info fs.FileInfo) *knownManifest {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.manifests[folder]
	if was == nil || info == nil || info.ModTime().Unix() <= 0 || was.size != info.Size() || !was.written && !was.modTime.Equal(info.ModTime()) {
		return nil
	}
	was.modTime, was.written = info.ModTime(), false
	copied := *was
	return &copied
}

func (k *known) addManifest(folder string, one knownManifest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.manifests == nil {
		k.manifests = map[string]*knownManifest{}
	}
	k.manifests[folder] = &one
}

// markWhole takes note that the shards of a manifest had their sizes.
func (k *known) markWhole(folder string, crc manifest.Checksum) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if one := k.manifests[folder]; one != nil && one.crc == crc {
		one.whole = true
	}
}

// forget forgets what was read in a folder.
func (k *known) forget(folder string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.manifests, folder)
}

// forgetOthers forgets what is not in these folders.
func (k *known) forgetOthers(folders []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.manifests, func(name string, _ *knownManifest) bool { return !slices.Contains(folders, name) })
}

func (k *known) record(name string) (manifest.Record, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.records[name]
	return r, ok
}

func (k *known) addRecord(name string, r manifest.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records == nil {
		k.records = map[string]manifest.Record{}
	}
	k.records[name] = r
}
