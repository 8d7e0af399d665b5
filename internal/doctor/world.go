package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ddpbatch/mpi"
)

// Examine checks all nodes of the ranks of c; the first task of each node checks it. Rank 0 gets the report, the others get nil. All ranks
// must call it; localRank is this rank's number on its node.
func (t Task) Examine(ctx context.Context, c *mpi.Comm, localRank int) (*Report, error) {
	colour := 0
	if localRank > 0 {
		colour = -1
	}
	firsts, err := c.Split(ctx, colour, c.Rank())
	if err != nil {
		return nil, err
	}
	var report *Report
	if firsts != nil {
		if report, err = t.examine(ctx, firsts); err != nil {
			return nil, err
		}
	}
	return report, c.Barrier(ctx) // a rank that ended earlier would end the others
}

// examine is the part of Examine for the first task of each node.
func (t Task) examine(ctx context.Context, c *mpi.Comm) (*Report, error) {
	shared, err := t.seesFolder(ctx, c)
	if err != nil {
		return nil, err
	}
	own := t.Node(ctx)
	own.FolderShared = shared
	nodes, err := mpi.GatherObject(ctx, c, own, 0)
	if err != nil {
		return nil, err
	}
	ahead, err := measureClocks(ctx, c)
	if err != nil {
		return nil, err
	}
	mine, err := measurePairs(ctx, c)
	if err != nil {
		return nil, err
	}
	pairs, err := mpi.GatherObject(ctx, c, mine, 0)
	if err != nil || c.Rank() > 0 {
		return nil, err
	}
	for i := range nodes {
		nodes[i].ClockAheadS = ahead[i].Round(time.Microsecond).Seconds()
	}
	r := &Report{Nodes: nodes, Pairs: slices.Concat(pairs...), Backend: c.Backend()}
	r.judge()
	return r, nil
}

// seesFolder reports whether this node sees a file that rank 0 has made in the folder in which the command was called. If rank 0 cannot
// make one, which is another finding, it returns true on all nodes.
func (t Task) seesFolder(ctx context.Context, c *mpi.Comm) (bool, error) {
	name := ""
	if c.Rank() == 0 {
		if file, err := os.CreateTemp(t.Folder, ".ddpbatch-doctor-*"); err == nil {
			name = filepath.Base(file.Name())
			defer os.Remove(file.Name())
			file.Close()
		}
	}
	name, err := mpi.BroadcastObject(ctx, c, name, 0)
	if err != nil {
		return false, err
	}
	sees := true
	if name != "" {
		_, statErr := os.Stat(filepath.Join(t.Folder, filepath.Base(name)))
		sees = statErr == nil
	}
	return sees, c.Barrier(ctx) // before rank 0 removes it
}
