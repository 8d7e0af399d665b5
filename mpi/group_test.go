package mpi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// counted returns an error unless c consists of the given ranks of the world, in that order, and can sum.
func counted(ctx context.Context, c *Comm, ranks ...int) error {
	if !slices.Equal(c.Ranks(), ranks) || c.Size() != len(ranks) {
		return fmt.Errorf("the group is of %v, want %v", c.Ranks(), ranks)
	}
	x := []int{1 << c.core.members[c.Rank()]}
	want := 0
	for _, rank := range ranks {
		want |= 1 << rank
	}
	if err := AllReduce(ctx, c, x, Sum); err != nil {
		return err
	}
	if x[0] != want {
		return fmt.Errorf("in the group of %v the sum is %b, want %b", ranks, x[0], want)
	}
	return nil
}

// Groups can be disjoint, as torch's new_subgroups_by_enumeration [[0,2],[1,3]], have another order, overlap, and nest.
func TestGroupsOverlapAndNest(t *testing.T) {
	everywhere(t, []int{4}, func(ctx context.Context, c *Comm) error {
		lists := [][]int{{0, 2}, {1, 3}, {3, 1, 0}, {2}, {0, 1, 2, 3}}
		var mine []*Comm
		for _, ranks := range lists {
			g, err := c.Group(ctx, ranks)
			if err != nil {
				return err
			}
			if at := slices.Index(ranks, c.Rank()); (g == nil) != (at < 0) || g != nil && g.Rank() != at {
				return fmt.Errorf("rank %d of the group of %v is %+v", c.Rank(), ranks, g)
			}
			mine = append(mine, g)
		}
		for i, g := range mine {
			if g == nil {
				continue
			}
			if err := counted(ctx, g, lists[i]...); err != nil {
				return err
			}
		}
		if g := mine[2]; g != nil {
			nested, err := g.Group(ctx, []int{2, 0}) // world ranks 0 and 3
			if err != nil {
				return err
			}
			if nested != nil {
				if err := counted(ctx, nested, 0, 3); err != nil {
					return err
				}
			}
		}
		copied, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		return errors.Join(counted(ctx, copied, 0, 1, 2, 3), copied.Close(), counted(ctx, c, 0, 1, 2, 3))
	})
}

func TestSplit(t *testing.T) {
	everywhere(t, []int{1, 2, 5, 8}, func(ctx context.Context, c *Comm) error {
		rank, size := c.Rank(), c.Size()
		var evens, odds, reversed []int
		for r := range size {
			if r%2 == 0 {
				evens = append(evens, r)
			} else {
				odds = append(odds, r)
			}
			reversed = append([]int{r}, reversed...)
		}
		halves, err := c.Split(ctx, rank%2, 0)
		if err != nil {
			return err
		}
		want := [][]int{evens, odds}[rank%2]
		if err := counted(ctx, halves, want...); err != nil {
			return err
		}
		turned, err := c.Split(ctx, 7, -rank)
		if err != nil {
			return err
		}
		if err := counted(ctx, turned, reversed...); err != nil {
			return err
		}
		colour := 1
		if rank == 0 {
			colour = -1
		}
		rest, err := c.Split(ctx, colour, 0)
		if err != nil || (rest == nil) != (rank == 0) {
			return fmt.Errorf("colour %d: %v, %w", colour, rest, err)
		}
		nested, err := turned.Split(ctx, turned.Rank()/2, 0)
		if err != nil {
			return err
		}
		at := turned.Rank() / 2 * 2
		return counted(ctx, nested, reversed[at:min(at+2, size)]...)
	})
}

// Several groups on the same connections, each with a goroutine of its own, do not disturb each other.
func TestGroupsDoNotDisturbEachOther(t *testing.T) {
	const groups = 5
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	everywhere(t, []int{2, 4}, func(ctx context.Context, c *Comm) error {
		comms := []*Comm{c}
		for len(comms) < groups {
			g, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			comms = append(comms, g)
		}
		return errors.Join(testkit.Each(groups, func(i int) error {
			dice := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 30 {
				n := dice.IntN(1 << (4 * dice.IntN(5)))
				buf := slices.Repeat([]int32{int32(n + c.Rank())}, n)
				if err := AllReduce(ctx, comms[i], buf, Sum); err != nil {
					return err
				}
				want := int32(c.Size()*n + c.Size()*(c.Size()-1)/2)
				if at := slices.IndexFunc(buf, func(x int32) bool { return x != want }); at >= 0 {
					return fmt.Errorf("group %d: element %d of %d is %d, want %d", i, at, n, buf[at], want)
				}
			}
			return nil
		})...)
	})
}

func TestImpossibleGroupIsRefused(t *testing.T) {
	tests := []struct {
		ranks []int
		text  string
	}{
		{[]int{0, 2}, "rank 2 does not exist: ranks are 0 to 1"},
		{[]int{-1}, "rank -1 does not exist"},
		{[]int{1, 1}, "rank 1 is named twice"},
		{nil, "the list of ranks is empty"},
	}
	for _, tt := range tests {
		w := newWorldOn(t, "local", 2, nil)
		errs := testkit.Each(2, func(rank int) error {
			if rank == 0 {
				_, err := w[0].Group(t.Context(), tt.ranks)
				return err
			}
			return w[1].Barrier(t.Context()) // gets the error, and does not wait
		})
		if errs[0] == nil || !strings.Contains(errs[0].Error(), tt.text) {
			t.Errorf("%v: got %v, want %q", tt.ranks, errs[0], tt.text)
		}
		if !errors.Is(errs[1], ErrAborted) || !strings.Contains(errs[1].Error(), tt.text) {
			t.Errorf("%v: the other got %v, want %q", tt.ranks, errs[1], tt.text)
		}
	}
}

func TestGroupDisagreementIsFound(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, 3, nil)
			errs := testkit.Each(3, func(rank int) error {
				_, err := w[rank].Group(t.Context(), [][]int{{0, 1}, {0, 1}, {0, 1, 2}}[rank])
				return err
			})
			for rank, err := range errs {
				if !errors.Is(err, ErrMismatch) {
					t.Errorf("rank %d got %v", rank, err)
				}
			}
		})
	}
}

// A group outlives its failed sibling. If one rank has closed a group, the next call of the others fails.
func TestGroupOutlivesItsFailedSibling(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, 3, nil)
			must(t, testkit.Each(3, func(rank int) error {
				ctx := t.Context()
				a, err := w[rank].Dup(ctx)
				if err != nil {
					return err
				}
				b, err := w[rank].Dup(ctx)
				if err != nil {
					return err
				}
				if rank == 1 {
					if err := a.Close(); err != nil {
						return err
					}
				} else if err := a.Barrier(ctx); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "rank 1") {
					return fmt.Errorf("a rank has closed the group: %w", err)
				}
				if err := a.Barrier(ctx); err == nil || rank == 1 && !errors.Is(err, ErrClosed) {
					return fmt.Errorf("later: %w", err)
				}
				return errors.Join(counted(ctx, b, 0, 1, 2), counted(ctx, w[rank], 0, 1, 2))
			}))
		})
	}
}
