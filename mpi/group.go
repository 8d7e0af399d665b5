package mpi

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
)

// Group makes a Comm of the given ranks of c, in that order: its rank i is rank ranks[i] of c. All ranks of c call it with the same ranks;
// those that are not among them get nil. The new Comm uses the connections of c, and lives no longer than the Comm that Init made. Its
// calls and those of c do not disturb each other.
func (c *Comm) Group(ctx context.Context, ranks []int) (*Comm, error) {
	var made *Comm
	err := c.core.exclusively(ctx, groupCall.String(), func(ctx context.Context) error {
		o := operation{kind: groupCall, count: digestOf(ranks), wrong: checkRanks(ranks, c.Size())}
		if err := c.core.execute(ctx, &o); err != nil || !slices.Contains(ranks, c.Rank()) {
			return err
		}
		var err error
		made, err = c.core.newSubgroup(ctx, ranks, c.core.seq)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("new group: %w", err)
	}
	return made, nil
}

// checkRanks checks the ranks of a new group.
func checkRanks(ranks []int, size int) error {
	if len(ranks) == 0 {
		return errors.New("the list of ranks is empty")
	}
	for i, rank := range ranks {
		if rank < 0 || rank >= size {
			return fmt.Errorf("rank %d does not exist: ranks are 0 to %d", rank, size-1)
		}
		if slices.Contains(ranks[:i], rank) {
			return fmt.Errorf("rank %d is named twice", rank)
		}
	}
	return nil
}

// Dup makes another Comm of the same ranks.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	ranks := make([]int, c.Size())
	for rank := range ranks {
		ranks[rank] = rank
	}
	return c.Group(ctx, ranks)
}

// Split divides the ranks of c: ranks that pass the same colour make a Comm together. The new ranks are in the order of their keys, and of
// their old ranks if keys are equal. A rank that passes a negative colour gets nil.
func (c *Comm) Split(ctx context.Context, colour, key int) (*Comm, error) {
	var made *Comm
	err := c.core.exclusively(ctx, groupCall.String(), func(ctx context.Context) error {
		own := binary.LittleEndian.AppendUint64(nil, uint64(int64(colour)))
		own = binary.LittleEndian.AppendUint64(own, uint64(int64(key)))
		all, err := c.core.allGatherBytes(ctx, own)
		if err != nil || colour < 0 {
			return err
		}
		var ranks []int
		keys := make([]int64, len(all))
		for rank, block := range all {
			keys[rank] = int64(binary.LittleEndian.Uint64(block[8:]))
			if int64(binary.LittleEndian.Uint64(block)) == int64(colour) {
				ranks = append(ranks, rank)
			}
		}
		slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
		made, err = c.core.newSubgroup(ctx, ranks, c.core.seq)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("split: %w", err)
	}
	return made, nil
}

// newSubgroup makes the Comm of some ranks of k, this one among them, right after these have agreed on them. All of them pass the same
// moment, which differs from that of every other subgroup of k.
func (k *core) newSubgroup(ctx context.Context, ranks []int, moment uint64) (*Comm, error) {
	if k.group == nil {
		return &Comm{core: &core{world: k.world, members: []int{0}}}, nil
	}
	members := make([]int, len(ranks))
	for i, rank := range ranks {
		members[i] = k.members[rank]
	}
	c, err := k.world.assemble(ctx, childID(k.group.ID(), moment, digestOf(ranks)), members, nil)
	if err != nil {
		return nil, err
	}
	k.world.addChild(c.core)
	return c, nil
}

// childID returns a number that no other group has: a hash of the parent's number, of when the parent made the group, and of its ranks.
func childID(parent, seq, digest uint64) uint64 { return digestOf([]uint64{parent, seq, digest}) }

// digestOf returns a hash of numbers, such as the ranks of a group for the fingerprint.
func digestOf[T int | uint64](numbers []T) uint64 {
	h := fnv.New64a()
	for _, n := range numbers {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	return h.Sum64()
}
