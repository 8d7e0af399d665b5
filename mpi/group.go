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

// Group makes a Comm of the given ranks of c, in that order: rank i of it is ranks[i] of c. All ranks of c call it with the same
// ranks; those that are not among them get nil. The new Comm uses the connections of c, and lives no longer than
// the one that Init made; its calls and those of c do not disturb each other.
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

// checkRanks tells what is wrong with the ranks of a new group.
func checkRanks(ranks []int, size int) error {
	if len(ranks) == 0 {
		return errors.New("it has no ranks")
	}
	for i, rank := range ranks {
		if rank < 0 || rank >= size {
			return fmt.Errorf("there is no rank %d: ranks go from 0 to %d", rank, size-1)
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

// Split parts the ranks of c: those that call it with the same colour make a Comm together, in the order of their keys, and of
// their ranks where keys are equal. A rank whose colour is negative gets nil.
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

// newSubgroup makes the Comm of some ranks of k, this one among them, right after these have agreed on them. They agree on the moment,
// too, which no other branch of k has.
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

// childID is a number for a group that no other has: the hash of its parent, of when that made it, and of its ranks.
func childID(parent, seq, digest uint64) uint64 { return digestOf([]uint64{parent, seq, digest}) }

// digestOf is a hash of numbers: of a group's ranks, for the fingerprint.
func digestOf[T int | uint64](numbers []T) uint64 {
	h := fnv.New64a()
	for _, n := range numbers {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	return h.Sum64()
}
