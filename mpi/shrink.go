package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ddpbatch/mpi/internal/engine"
)

// Shrink makes a Comm of those ranks of c that are still there, in the order of their ranks. All of them call it, after c has
// failed. Ranks whose process has ended are left out, and those that do not answer within Config.Timeout.
//
// The survivors tell each other whom they have not lost, until twice in a row all have said the same. A rank that dies while they do
// so can make Shrink fail; then it is called again.
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	k := c.core
	if k.group == nil {
		return c.Dup(ctx)
	}
	var made *Comm
	err := k.alone(func() error {
		k.shrinks++
		id := childID(k.group.ID(), uint64(k.shrinks), shrinkMark)
		group, err := k.world.engine.Remains(id, k.members)
		if err != nil {
			return err
		}
		defer group.Retire()
		a := &agreement{group: group, alive: make([]bool, group.Size())}
		for rank := range a.alive {
			a.alive[rank] = !group.Ended(rank)
		}
		ranks, err := a.reach(ctx, k.config())
		if err != nil {
			return err
		}
		// The number of the last call is no moment to agree on: not all ranks may have failed in the same.
		made, err = k.branch(ctx, ranks, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("shrink to the survivors: %w", err)
	}
	return made, nil
}

// shrinkMark tells the groups in which survivors agree from others of the same parent.
const shrinkMark = 0x736872696e6b

// agreement is how survivors find out who they are.
type agreement struct {
	group *engine.Group
	alive []bool // by rank
	round uint64
}

// quiet is how many rounds in a row must have changed nothing.
const quiet = 2

// reach returns the ranks that all survivors agree on.
func (a *agreement) reach(ctx context.Context, cfg *Config) ([]int, error) {
	for unchanged := 0; unchanged < quiet; {
		before := slices.Clone(a.alive)
		same, err := a.exchange(ctx, cfg)
		if err != nil {
			return nil, err
		}
		if same && slices.Equal(before, a.alive) {
			unchanged++
		} else {
			unchanged = 0
		}
	}
	var ranks []int
	for rank, alive := range a.alive {
		if alive {
			ranks = append(ranks, rank)
		}
	}
	if !a.alive[a.group.Rank()] {
		return nil, errors.New("the others have given this rank up, as it did not answer them in time")
	}
	return ranks, nil
}

// exchange is one round: everybody tells everybody whom it takes to be alive. It tells whether all have said the same as
// this rank.
func (a *agreement) exchange(ctx context.Context, cfg *Config) (bool, error) {
	a.round++
	label := engine.Call{Collective: uint8(messageCall), Seq: a.round}
	own := make([]byte, len(a.alive))
	for rank, alive := range a.alive {
		if alive {
			own[rank] = 1
		}
	}
	sends, receives := make([]engine.Op, len(own)), make([]engine.Op, len(own))
	views := make([][]byte, len(own))
	asked := slices.Clone(a.alive)
	asked[a.group.Rank()] = false
	for rank := range asked {
		if asked[rank] {
			views[rank] = make([]byte, len(own))
			a.group.RecvMessage(&receives[rank], rank, label, views[rank])
			a.group.SendMessage(&sends[rank], rank, label, own)
		}
	}
	limited, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	err := a.group.Watch(limited, func() bool {
		for rank := range asked {
			if asked[rank] && !(receives[rank].Done() && sends[rank].Done()) {
				return false
			}
		}
		return true
	})
	if err != nil && limited.Err() == nil || ctx.Err() != nil {
		return false, errors.Join(err, ctx.Err())
	}
	same := true
	for rank := range asked {
		if !asked[rank] {
			continue
		}
		if !receives[rank].Done() || a.group.Wait(ctx, &receives[rank]) != nil {
			a.alive[rank], same = false, false
			continue
		}
		same = same && slices.Equal(views[rank], own)
		for other, seen := range views[rank] {
			a.alive[other] = a.alive[other] && seen == 1
		}
	}
	return same, nil
}
