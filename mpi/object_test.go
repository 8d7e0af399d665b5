package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// shard is an object of the kind that trainers exchange.
type shard struct {
	Name  string
	Rank  int
	Sizes []int
	Extra map[string]any
}

func shardOf(rank int) shard {
	return shard{Name: strings.Repeat("é\"\x00", rank), Rank: rank, Sizes: make([]int, rank),
		Extra: map[string]any{"loss": 0.5, "none": nil, "deep": []any{"x", true}}}
}

func TestObjectsReachEveryRank(t *testing.T) {
	everywhere(t, []int{1, 2, 5}, func(ctx context.Context, c *Comm) error {
		rank, size := c.Rank(), c.Size()
		var all []shard
		for r := range size {
			all = append(all, shardOf(r))
		}
		got, err := AllGatherObject(ctx, c, shardOf(rank))
		if err != nil || !reflect.DeepEqual(got, all) {
			return fmt.Errorf("all_gather: %+v, %w", got, err)
		}
		for root := range size {
			one, err := BroadcastObject(ctx, c, shardOf(rank), root)
			if err != nil || !reflect.DeepEqual(one, all[root]) {
				return fmt.Errorf("broadcast from %d: %+v, %w", root, one, err)
			}
			at, err := GatherObject(ctx, c, shardOf(rank), root)
			if err != nil || rank == root && !reflect.DeepEqual(at, all) || rank != root && at != nil {
				return fmt.Errorf("gather to %d: %+v, %w", root, at, err)
			}
			var values []shard
			if rank == root {
				values = all
			}
			one, err = ScatterObject(ctx, c, values, root)
			if err != nil || !reflect.DeepEqual(one, all[rank]) {
				return fmt.Errorf("scatter from %d: %+v, %w", root, one, err)
			}
		}
		// torch's mixed list: values of different kinds.
		mixed, err := AllGatherObject[any](ctx, c, []any{"foo", 1.5, nil, map[string]any{"a": "b"}}[rank%4])
		if err != nil || mixed[0] != "foo" || size > 2 && mixed[2] != nil {
			return fmt.Errorf("mixed: %v, %w", mixed, err)
		}
		return nil
	})
}

// The receivers of bytes need not know the lengths, one of which is 0.
func TestBytesOfUnknownLengthsArrive(t *testing.T) {
	everywhere(t, []int{1, 2, 5}, func(ctx context.Context, c *Comm) error {
		of := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank)}, 1000*rank) }
		for root := range c.Size() {
			got, err := BroadcastBytes(ctx, c, of(c.Rank()), root)
			if err != nil || !bytes.Equal(got, of(root)) {
				return fmt.Errorf("broadcast from %d: %d bytes, %w", root, len(got), err)
			}
			all, err := GatherBytes(ctx, c, of(c.Rank()), root)
			if err != nil || c.Rank() == root && len(all) != c.Size() || c.Rank() != root && all != nil {
				return fmt.Errorf("gather to %d: %d messages, %w", root, len(all), err)
			}
			for rank, got := range all {
				if !bytes.Equal(got, of(rank)) || cap(got) != len(got) {
					return fmt.Errorf("gather to %d: rank %d's are %d bytes", root, rank, len(got))
				}
			}
		}
		return nil
	})
}

// An object that is too long is an error on every rank, before any of them allocates memory for it, and the Comm is not broken.
func TestBytesTooLongFailOnEveryRank(t *testing.T) {
	w := newWorldOn(t, "local", 2, nil)
	for rank, err := range testkit.Each(2, func(rank int) error {
		var b []byte
		if rank == 1 {
			b = make([]byte, maxObject+1)
		}
		if _, err := GatherBytes(t.Context(), w[rank], b, 0); err == nil {
			return errors.New("gathered")
		}
		if _, err := BroadcastBytes(t.Context(), w[rank], b, 1); err == nil ||
			!strings.Contains(err.Error(), "rank 1 sends 1073741825 bytes") {
			return fmt.Errorf("broadcast: %w", err)
		}
		return w[rank].Barrier(t.Context())
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// If one rank's value cannot be encoded, all ranks get an error at once.
func TestUnencodableObjectFailsOnEveryRank(t *testing.T) {
	bad := func(rank, culprit int) float64 {
		if rank == culprit {
			return math.NaN() // JSON cannot encode it
		}
		return 1
	}
	calls := map[string]func(ctx context.Context, c *Comm) error{
		"all_gather": func(ctx context.Context, c *Comm) error {
			_, err := AllGatherObject(ctx, c, bad(c.Rank(), 1))
			return err
		},
		"broadcast": func(ctx context.Context, c *Comm) error {
			_, err := BroadcastObject(ctx, c, bad(c.Rank(), 1), 1)
			return err
		},
		"gather": func(ctx context.Context, c *Comm) error {
			_, err := GatherObject(ctx, c, bad(c.Rank(), 1), 0)
			return err
		},
		"scatter": func(ctx context.Context, c *Comm) error {
			_, err := ScatterObject(ctx, c, []float64{1, bad(c.Rank(), 1), 1}, 1)
			return err
		},
		"scatter_count": func(ctx context.Context, c *Comm) error { _, err := ScatterObject(ctx, c, []float64{1}, 1); return err },
	}
	for _, over := range transports {
		for name, call := range calls {
			t.Run(over+"/"+name, func(t *testing.T) {
				w := newWorldOn(t, over, 3, nil)
				var errs []error
				testkit.Within(t, testkit.Patience, func() {
					errs = testkit.Each(3, func(rank int) error { return call(t.Context(), w[rank]) })
				})
				for rank, err := range errs {
					if err == nil || rank != 1 && !strings.Contains(err.Error(), "rank 1 could not encode its object") {
						t.Errorf("rank %d got %v", rank, err)
					}
				}
				// The Comm is not broken: all ranks can make the next call.
				must(t, testkit.Each(3, func(rank int) error { return w[rank].Barrier(t.Context()) }))
			})
		}
	}
}

func TestObjectOfAnotherTypeIsRefused(t *testing.T) {
	w := newWorldOn(t, "local", 2, nil)
	errs := testkit.Each(2, func(rank int) error {
		if rank == 0 {
			_, err := BroadcastObject(t.Context(), w[0], "text", 0)
			return err
		}
		_, err := BroadcastObject(t.Context(), w[1], time.Now(), 0)
		return err
	})
	if errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "decode the object of rank 0 as time.Time") {
		t.Errorf("got %v", errors.Join(errs...))
	}
}
