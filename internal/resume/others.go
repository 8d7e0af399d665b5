package resume

import (
	"context"
	"slices"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
)

// AlsoChanges names the elements that the settings of a resume of one element change, too, and that have not ended: "2-5". It returns ""
// if there are none, and for a run that is not an element.
func (r *Resumer) AlsoChanges(ctx context.Context, run *rundir.Dir) (elements string, err error) {
	forAll := func(set string) bool { return jobfile.SetKey(set) != "checkpoint.resume" }
	index, isElement := run.Index()
	if !isElement || !slices.ContainsFunc(r.Sets, forAll) {
		return "", nil
	}
	row, err := r.View.Status(ctx, run.Whole())
	return row.OpenElements(index), err
}
