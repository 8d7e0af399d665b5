package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

// The states of a checkpoint on disk, which List finds without reading data.
const (
	StateCommitted  = "committed"  // the manifest is good and every shard has its size
	StatePartial    = "partial"    // no manifest: in progress, or left by an attempt that died
	StateBroken     = "broken"     // the manifest is damaged, a shard is missing or cut short, or it was renamed .broken
	StateNewer      = "newer"      // committed by a newer program, in a format this one cannot read
	StateSuperseded = "superseded" // committed, but a later attempt resumed from an earlier step
	StateUnreadable = "unreadable" // the folder, the manifest or a shard cannot be read now; it is left as it is
)

// Info describes a checkpoint on disk.
type Info struct {
	Step      int64     `json:"step"`
	Path      string    `json:"path"`      // its folder
	Bytes     int64     `json:"bytes"`     // of manifest and shards, on disk
	World     int       `json:"world"`     // this and the fields below are zero if no manifest can be read
	Committed bool      `json:"committed"` // State is "committed"
	State     string    `json:"state"`     // one of the State constants
	Attempt   int       `json:"attempt"`
	Created   time.Time `json:"created"`

	Run      string             `json:"run"`
	RawBytes int64              `json:"raw_bytes"` // of the tensors
	BaseStep int64              `json:"base_step"` // of the checkpoint that this is a delta of; -1: none
	Metrics  map[string]float64 `json:"metrics,omitempty"`
	Pinned   []string           `json:"pinned,omitempty"` // labels; "" stands for a file PINNED
}

// List returns the checkpoints in the folder, oldest first: by step, then by attempt and by the time of
// the save. It returns none if the folder does not exist. It skips files and folders that are not
// checkpoints, and lists a checkpoint that cannot be read now as such. StateSuperseded is from the view of Options.Run.
func (d *Dir) List(ctx context.Context) ([]Info, error) {
	v, err := d.look(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints in %s: %w", d.path, classify(err))
	}
	list := make([]Info, len(v.folders))
	for i, e := range v.folders {
		list[i] = e.info
	}
	return list, nil
}

// view is the result of a look at the checkpoints folder.
type view struct {
	files   []string      // files beside the checkpoints' folders
	folders []*folderInfo // oldest first
	records lineage
}

// folderInfo is what is known of a checkpoint's folder.
type folderInfo struct {
	name    string
	info    Info               // Run, Attempt and so on are zero where m is nil
	m       *manifest.Manifest // without tensors and values; nil if it cannot be read
	crc     manifest.Checksum  // of the manifest's bytes
	files   []string           // all names in the folder
	by      int                // the attempt that superseded it
	err     error              // why it is unreadable, newer, or has a damaged manifest
	checked bool               // the sizes of its shards have been checked
}

// look finds the state of every checkpoint from its manifest and the sizes of its shards. If quick, it
// uses the cache, does not read the records of other runs, and does not check the size of a shard that
// its folder lists; checkShards does that.
func (d *Dir) look(ctx context.Context, quick bool) (*view, error) {
	folders, files, err := d.names()
	if err != nil {
		return nil, err
	}
	v := &view{files: files}
	if v.records, err = d.readLineage(ctx, files, quick); err != nil {
		return nil, err
	}
	found := make([]*folderInfo, len(folders))
	err = inParallel(ctx, openAtOnce, numbers(len(folders)), func(ctx context.Context, i int) error {
		found[i] = d.folderInfoOf(ctx, folders[i], v.records, quick)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	v.folders = slices.DeleteFunc(found, func(e *folderInfo) bool { return e == nil })
	doubtful := slices.DeleteFunc(slices.Clone(v.folders), func(e *folderInfo) bool { return quick && e.listsShards() })
	if err := d.checkShards(ctx, doubtful); err != nil {
		return nil, err
	}
	slices.SortFunc(v.folders, byAge)
	v.breakOrphans()
	if quick {
		d.cache.forgetOthers(folders)
	}
	return v, nil
}

// folderInfoOf returns what a folder holds, except for what checkShards finds. It returns nil if the folder
// has been removed since it was listed.
func (d *Dir) folderInfoOf(ctx context.Context, name string, records lineage, quick bool) *folderInfo {
	e := d.inspect(ctx, name, quick)
	if e != nil && e.m != nil && e.info.Committed {
		if by, yes := records.superseded(e.m, name, d.opt.Run); yes {
			e.by, e.info.State, e.info.Committed = by.Attempt, StateSuperseded, false
		}
	}
	return e
}

// lookAgain inspects what seems broken a second time, before anything is removed because of it.
func (d *Dir) lookAgain(ctx context.Context, v *view) error {
	var again []*folderInfo
	for i, e := range v.folders {
		if folder, _ := manifest.ParseFolder(e.name); e.info.State != StateBroken || folder.Broken {
			continue
		}
		if v.folders[i] = d.folderInfoOf(ctx, e.name, v.records, false); v.folders[i] != nil {
			again = append(again, v.folders[i])
		}
	}
	v.folders = slices.DeleteFunc(v.folders, func(e *folderInfo) bool { return e == nil })
	if err := d.checkShards(ctx, again); err != nil {
		return err
	}
	slices.SortFunc(v.folders, byAge) // a manifest that has become readable changes the order
	v.breakOrphans()
	return ctx.Err()
}

// breakOrphans marks deltas as broken if their base is missing, broken or another checkpoint: they cannot be read without it. If a base
// cannot be read at the moment, its deltas may be good.
func (v *view) breakOrphans() {
	bases := map[string]*folderInfo{}
	for _, e := range v.folders {
		bases[e.name] = e
	}
	for _, e := range v.folders {
		if e.m == nil || e.m.Base == nil || !e.info.Committed {
			continue
		}
		base := bases[e.m.Base.Folder]
		if base == nil || base.info.State == StateBroken || base.info.State == StatePartial || base.m != nil && base.crc != e.m.Base.CRC {
			e.info.State, e.info.Committed = StateBroken, false
		}
	}
}

// byAge orders the oldest checkpoint first.
func byAge(a, b *folderInfo) int {
	return cmp.Or(cmp.Compare(a.info.Step, b.info.Step), newer(a.m, b.m), cmp.Compare(a.name, b.name))
}

// newer compares two saves of one step: the higher attempt takes precedence, then the later save. Saves
// that cannot be read come first.
func newer(a, b *manifest.Manifest) int {
	if a == nil || b == nil {
		return cmp.Compare(boolToInt(a != nil), boolToInt(b != nil))
	}
	return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), a.Created.Compare(b.Created))
}

// good reports whether Latest would take a checkpoint, as far as is known.
func (d *Dir) good(e *folderInfo) bool { return e.info.Committed && !d.isBad(e.id()) }

// describe returns the Info of a committed checkpoint whose manifest has size bytes.
func (d *Dir) describe(folder string, m *manifest.Manifest, size int64) Info {
	info := Info{
		Step: m.Step, Path: filepath.Join(d.path, folder), Bytes: size, World: m.World,
		Committed: true, State: StateCommitted, Attempt: m.Attempt, Created: m.Created,
		Run: m.Run, BaseStep: -1, Metrics: m.Metrics,
	}
	for _, s := range m.Shards {
		info.Bytes += s.Size
		info.RawBytes += s.Raw
	}
	if m.Base != nil {
		info.BaseStep = m.Base.Step
	}
	return info
}

// names lists the checkpoints folder: the folders in it that have a checkpoint's name, and all
// files. It returns none if the folder does not exist. A link is not a folder.
func (d *Dir) names() (folders, files []string, err error) {
	entries, err := d.fs.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	for _, e := range entries {
		if !e.IsDir() {
			files = append(files, e.Name())
		} else if _, ok := manifest.ParseFolder(e.Name()); ok {
			folders = append(folders, e.Name())
		}
	}
	return folders, files, err
}

// numbers returns 0 to n-1.
func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
