package mpi

import (
	"context"
	"errors"
	"fmt"
)

// Shrink makes a Comm of those ranks of c that are still there, in the order of their ranks. All of them call it, once, after c has
// failed. Ranks whose process has ended, or that have closed c, are left out, and those that do not answer within
// Config.Timeout; these get an error when they do. It fails where no more than half of the ranks that have not ended answer, so that no
// two parts of a group can both go on.
//
// Who dies while the others agree may still be among them: then the new Comm is broken from the start on all its ranks, and Shrink
// is called on that.
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	k := c.core
	if k.group == nil {
		return c.Dup(ctx)
	}
	var made *Comm
	err := k.alone(ctx, "shrink", func(ctx context.Context) error {
		ranks, err := k.survivors(ctx)
		if err != nil {
			return err
		}
		made, err = k.branch(ctx, ranks, shrinkMark)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("shrink to the survivors: %w", err)
	}
	return made, nil
}

// shrinkMark stands for the moment of a Shrink, which no call's number is.
const shrinkMark = 1 << 62

// survivors agrees with the others on who is still there.
func (k *core) survivors(ctx context.Context) ([]int, error) {
	if k.survey == nil {
		group, err := k.world.engine.Remains(childID(k.group.ID(), 0, shrinkMark), k.members)
		if err != nil {
			return nil, err
		}
		k.survey = newSurvey(group, k.group.HasLeft)
	}
	s := k.survey
	if s.decided != nil {
		return nil, errors.New("it has been shrunk before: shrink the Comm that came of that")
	}
	if err := s.reach(ctx, k.config().Timeout); err != nil {
		return nil, err
	}
	go s.linger()
	var ranks []int
	for rank, in := range s.decided {
		if in == 1 {
			ranks = append(ranks, rank)
		}
	}
	if s.decided[s.group.Rank()] == 0 {
		return nil, errors.New("the others have given this rank up, as it did not answer them in time")
	}
	return ranks, nil
}
