package checkpoint

import (
	"cmp"
	"context"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
)

// view is what a look at the checkpoints folder found.
type view struct {
	files   []string // beside the checkpoints
	entries []*entry // oldest first
	records lineage
}

// entry is one folder of a checkpoint.
type entry struct {
	name    string
	info    Info               // Run, Attempt and so on are zero where m is nil
	m       *manifest.Manifest // less tensors and values; nil where it cannot be read
	crc     manifest.Checksum  // of the manifest's bytes
	files   []string           // all that is in the folder
	by      int                // the attempt that superseded it
	err     error              // why it is unreadable, of a newer format, or its manifest damaged
	checked bool               // the sizes of its shards have been looked at
}

// look finds the state of every checkpoint from its manifest and the sizes of its shards. A quick
// look believes what this Dir has read before, of other runs it reads no records, and of a shard that its
// folder lists it does not ask the size; checkShards does.
func (d *Dir) look(ctx context.Context, quick bool) (*view, error) {
	folders, files, err := d.names()
	if err != nil {
		return nil, err
	}
	v := &view{files: files}
	if v.records, err = d.readLineage(ctx, files, quick); err != nil {
		return nil, err
	}
	found := make([]*entry, len(folders))
	err = inParallel(ctx, opening, numbers(len(folders)), func(ctx context.Context, i int) error {
		found[i] = d.entryOf(ctx, folders[i], v.records, quick)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	v.entries = slices.DeleteFunc(found, func(e *entry) bool { return e == nil })
	doubtful := slices.DeleteFunc(slices.Clone(v.entries), func(e *entry) bool { return quick && e.listsShards() })
	if err := d.checkShards(ctx, doubtful); err != nil {
		return nil, err
	}
	slices.SortFunc(v.entries, byAge)
	v.breakOrphans()
	if quick {
		d.known.forgetOthers(folders)
	}
	return v, nil
}

// numbers are 0 to n-1.
func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// entryOf is the entry of a folder, less what checkShards finds; nil where that has been removed
// since it was listed.
func (d *Dir) entryOf(ctx context.Context, name string, records lineage, quick bool) *entry {
	e := d.inspect(ctx, name, quick)
	if e != nil && e.m != nil && e.info.Committed {
		if by, yes := records.superseded(e.m, name, d.opt.Run); yes {
			e.by, e.info.State, e.info.Committed = by.Attempt, StateSuperseded, false
		}
	}
	return e
}

// lookAgain looks once more at what seems broken, before anything is removed for that.
func (d *Dir) lookAgain(ctx context.Context, v *view) error {
	var again []*entry
	for i, e := range v.entries {
		if folder, _ := manifest.ParseFolder(e.name); e.info.State != StateBroken || folder.Broken {
			continue
		}
		if v.entries[i] = d.entryOf(ctx, e.name, v.records, false); v.entries[i] != nil {
			again = append(again, v.entries[i])
		}
	}
	v.entries = slices.DeleteFunc(v.entries, func(e *entry) bool { return e == nil })
	if err := d.checkShards(ctx, again); err != nil {
		return err
	}
	slices.SortFunc(v.entries, byAge) // a manifest that can be read now has another place
	v.breakOrphans()
	return ctx.Err()
}

// breakOrphans marks deltas whose base is gone, broken or another one: they hold nothing by themselves. One whose base cannot be read
// now may be good.
func (v *view) breakOrphans() {
	bases := map[string]*entry{}
	for _, e := range v.entries {
		bases[e.name] = e
	}
	for _, e := range v.entries {
		if e.m == nil || e.m.Base == nil || !e.info.Committed {
			continue
		}
		base := bases[e.m.Base.Folder]
		if base == nil || base.info.State == StateBroken || base.info.State == StatePartial || base.m != nil && base.crc != e.m.Base.CRC {
			e.info.State, e.info.Committed = StateBroken, false
		}
	}
}

// byAge orders the oldest first.
func byAge(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.info.Step, b.info.Step), newer(a.m, b.m), cmp.Compare(a.name, b.name))
}

// newer compares two saves of one step: the higher attempt, then the later one, counts. Those
// that cannot be read come first.
func newer(a, b *manifest.Manifest) int {
	if a == nil || b == nil {
		return cmp.Compare(boolToInt(a != nil), boolToInt(b != nil))
	}
	return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), a.Created.Compare(b.Created))
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// good says whether an entry is one that Latest would take, as far as is known.
func (d *Dir) good(e *entry) bool { return e.info.Committed && !d.isBad(e.id()) }
