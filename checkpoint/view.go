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
	name  string
	info  Info               // Run, Attempt and so on are zero where m is nil
	m     *manifest.Manifest // nil where it cannot be read
	crc   manifest.Checksum  // of the manifest's bytes
	files []string           // all that is in the folder
	by    int                // the attempt that superseded it
}

// look finds the state of every checkpoint from its manifest and the sizes of its shards.
func (d *Dir) look(ctx context.Context) (*view, error) {
	folders, files, err := d.names()
	if err != nil {
		return nil, err
	}
	v := &view{files: files}
	if v.records, err = d.readLineage(files); err != nil {
		return nil, err
	}
	for _, name := range folders {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if e := d.entryOf(ctx, name, v.records); e != nil {
			v.entries = append(v.entries, e)
		}
	}
	slices.SortFunc(v.entries, byAge)
	return v, ctx.Err()
}

// entryOf is the entry of a folder; nil where that has been removed since it was listed.
func (d *Dir) entryOf(ctx context.Context, name string, records lineage) *entry {
	e := d.inspect(ctx, name)
	if e != nil && e.m != nil && e.info.Committed {
		if by, yes := records.superseded(e.m, name, d.opt.Run); yes {
			e.by, e.info.State, e.info.Committed = by.Attempt, StateSuperseded, false
		}
	}
	return e
}

// lookAgain looks once more at what seems broken, before anything is removed for that.
func (d *Dir) lookAgain(ctx context.Context, v *view) {
	for i, e := range v.entries {
		if folder, _ := manifest.ParseFolder(e.name); e.info.State != StateBroken || folder.Broken {
			continue
		}
		if again := d.entryOf(ctx, e.name, v.records); again != nil {
			v.entries[i] = again
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
