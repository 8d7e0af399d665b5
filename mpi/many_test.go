package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// Gathers and scatters of many buffers do what one call for each buffer does, waited for or not, packed or too long to be packed.
func TestManyBuffersMoveLikeSingleOnes(t *testing.T) {
	everywhere(t, []int{1, 2, 3}, func(ctx context.Context, c *Comm) error {
		size, rank := c.Size(), c.Rank()
		for _, lengths := range [][]int{nil, {3}, {2, 0, 5}, {1, maxPacked}} {
			var parts, wholes, gathered, scattered, wantGathered, wantScattered [][]int32
			for i, n := range lengths {
				part, whole := make([]int32, n), make([]int32, n*size)
				for j := range part {
					part[j] = int32(100*i + 10*rank + j)
				}
				for j := range whole {
					whole[j] = int32(i + j + rank)
				}
				parts, wholes = append(parts, part), append(wholes, whole)
				gathered, scattered = append(gathered, make([]int32, n*size)), append(scattered, make([]int32, n))
				all, mine := make([]int32, n*size), make([]int32, n)
				for j := range all {
					all[j] = int32(100*i + 10*(j/n) + j%n)
				}
				for j := range mine {
					mine[j] = int32(size*(i+rank*n+j) + size*(size-1)/2)
				}
				wantGathered, wantScattered = append(wantGathered, all), append(wantScattered, mine)
			}
			check := func(how string, errs ...error) error {
				if err := errors.Join(errs...); err != nil {
					return err
				}
				if !slices.EqualFunc(gathered, wantGathered, slices.Equal) || !slices.EqualFunc(scattered, wantScattered, slices.Equal) {
					return fmt.Errorf("%s, lengths %v: something else came", how, lengths)
				}
				for i := range lengths {
					clear(gathered[i])
					clear(scattered[i])
				}
				return nil
			}
			if err := check("waited for", AllGatherMany(ctx, c, gathered, parts),
				ReduceScatterMany(ctx, c, scattered, wholes, Sum)); err != nil {
				return err
			}
			a, b := IAllGatherMany(ctx, c, gathered, parts), IReduceScatterMany(ctx, c, scattered, wholes, Sum)
			if err := check("by itself", WaitAll(ctx, a, b)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Requests that reduce or broadcast many buffers give the right results.
func TestManyBuffersGoOnByThemselves(t *testing.T) {
	everywhere(t, []int{1, 3}, func(ctx context.Context, c *Comm) error {
		sums, sent := [][]int32{{1}, {2, 3}}, [][]int32{{int32(c.Rank())}, {int32(c.Rank()), 9}}
		if err := WaitAll(ctx, IAllReduceMany(ctx, c, sums, Sum), IBroadcastMany(ctx, c, sent, c.Size()-1)); err != nil {
			return err
		}
		n, last := int32(c.Size()), int32(c.Size()-1)
		if !slices.EqualFunc(sums, [][]int32{{n}, {2 * n, 3 * n}}, slices.Equal) ||
			!slices.EqualFunc(sent, [][]int32{{last}, {last, 9}}, slices.Equal) {
			return fmt.Errorf("got %v and %v", sums, sent)
		}
		return nil
	})
}

// Buffers that a result would overwrite are refused, whether they are packed or not.
func TestOverlappingBuffersAreRefused(t *testing.T) {
	for _, n := range []int{4, maxPacked} {
		whole := make([]int32, n)
		err := ReduceScatterMany(t.Context(), Self(), [][]int32{whole, {1}}, [][]int32{whole, {1}}, Sum)
		if err == nil || !strings.Contains(err.Error(), "ins[0] and outs[0] overlap") {
			t.Errorf("reduce-scatter of %d elements: got %v", n, err)
		}
	}
	for _, n := range []int{4, maxPacked} {
		w := newWorldOn(t, "local", 2, nil)
		for rank, err := range testkit.Each(2, func(rank int) error {
			whole := make([]int32, n)
			return AllGatherMany(t.Context(), w[rank], [][]int32{whole, {1, 2}}, [][]int32{whole[1:][:n/2], {1}})
		}) {
			if err == nil || !strings.Contains(err.Error(), "ins[0] overlaps outs[0]") {
				t.Errorf("all-gather of %d elements: rank %d got %v", n, rank, err)
			}
		}
	}
}

// Buffers of the same total length that are cut at other places are a mismatch.
func TestBuffersOfOtherLengthsAreAMismatch(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *Comm) error{
		"all_reduce": func(ctx context.Context, c *Comm) error {
			return AllReduceMany(ctx, c, [][]int32{make([]int32, 2+c.Rank()), make([]int32, 3-c.Rank())}, Sum)
		},
		"broadcast": func(ctx context.Context, c *Comm) error {
			return BroadcastMany(ctx, c, [][]int32{make([]int32, 2+c.Rank()), make([]int32, 3-c.Rank())}, 0)
		},
		"all_gather": func(ctx context.Context, c *Comm) error {
			a, b := 2+c.Rank(), 3-c.Rank()
			return AllGatherMany(ctx, c, [][]int32{make([]int32, 2*a), make([]int32, 2*b)}, [][]int32{make([]int32, a), make([]int32, b)})
		},
		"reduce_scatter": func(ctx context.Context, c *Comm) error {
			a, b := 2+c.Rank(), 3-c.Rank()
			return ReduceScatterMany(ctx, c, [][]int32{make([]int32, a), make([]int32, b)},
				[][]int32{make([]int32, 2*a), make([]int32, 2*b)}, Sum)
		},
	}
	for _, over := range transports {
		for name, call := range calls {
			t.Run(over+"/"+name, func(t *testing.T) {
				w := newWorldOn(t, over, 2, nil)
				for rank, err := range testkit.Each(2, func(rank int) error {
					return errors.Join(call(t.Context(), w[rank]), w[rank].Close())
				}) {
					if !errors.Is(err, ErrMismatch) {
						t.Errorf("rank %d got %v", rank, err)
					}
				}
			})
		}
	}
}
