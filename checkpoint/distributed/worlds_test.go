package distributed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
)

// TestManyToMany saves random arrays with n ranks and loads them with m, for all pairs up to 8.
func TestManyToMany(t *testing.T) {
	t.Parallel()
	dtypes := map[string]int{"uint8": 1, "bfloat16": 2, "float32": 4, "float64": 8}
	for n := 1; n <= 8; n++ {
		_, fs := newDisk(t)
		names := rapid.SampledFrom([]string{"uint8", "bfloat16", "float32", "float64"})
		state := rapid.Custom(func(t *rapid.T) [][]Array { return randomState(t, n, names, dtypes) }).Example(n)
		whole := map[string][]byte{}
		for _, arrays := range state {
			for _, a := range arrays {
				whole[a.Name] = a.Data
			}
		}
		tr := trial{world: n, attempt: 1, fs: fs, codec: "auto"}
		mustAll(t, tr.run(t.Context(), func(ctx context.Context, r *one) error { return nil })) // the folder
		m := newMeeting(n)
		mustAll(t, testkit.Each(n, func(rank int) error {
			var dir *checkpoint.Dir
			o := Options{FS: fs(rank), Async: n%2 == 0}
			if rank == 0 {
				var err error
				if dir, err = checkpoint.Open(sharedPath, tr.dirOptions(o)); err != nil {
					return err
				}
			}
			s, err := New(t.Context(), m.member(rank), dir, state[rank], o)
			if err != nil {
				return err
			}
			return errors.Join(s.Save(t.Context(), Meta{Step: 7}), s.Close())
		}))
		for to := 1; to <= 8; to++ {
			mustAll(t, trial{world: to, attempt: 1 + to, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
				c, err := r.Resume(ctx, func(c *checkpoint.Checkpoint) error { return compareParts(ctx, c, whole, r.rank, to) })
				if err != nil {
					return err
				}
				return c.Close()
			}))
		}
	}
}

// randomState is what n ranks have: arrays that some or all hold, and some of one rank alone.
func randomState(t *rapid.T, n int, names *rapid.Generator[string], sizes map[string]int) [][]Array {
	state := make([][]Array, n)
	for i := range rapid.IntRange(1, 9).Draw(t, "arrays") {
		dtype := names.Draw(t, "dtype")
		rows, columns := rapid.IntRange(0, 90).Draw(t, "rows"), rapid.IntRange(1, 90).Draw(t, "columns")
		a := Array{Name: fmt.Sprint("array.", i), DType: dtype, Shape: []int{rows, columns}}
		a.Data = content(a.Name, rows*columns*sizes[dtype], int64(i))
		holders := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, n, rapid.ID[int]).Draw(t, "holders")
		a.Replicated = len(holders) > 1
		for _, rank := range holders {
			state[rank] = append(state[rank], a)
		}
	}
	return state
}

// compareParts reads what one of m ranks would need if all arrays were dealt out in slices, and compares.
func compareParts(ctx context.Context, c *checkpoint.Checkpoint, whole map[string][]byte, rank, m int) error {
	var targets []checkpoint.Target
	for name, data := range whole {
		from, to := len(data)*rank/m, len(data)*(rank+1)/m
		targets = append(targets, checkpoint.Target{Name: name, Start: int64(from), Data: make([]byte, to-from)})
	}
	if err := c.Read(ctx, targets); err != nil {
		return err
	}
	for _, part := range targets {
		if want := whole[part.Name][part.Start : part.Start+int64(len(part.Data))]; !slices.Equal(part.Data, want) {
			return fmt.Errorf("%s from %d: not what was saved", part.Name, part.Start)
		}
	}
	if got := len(c.Tensors()); got != len(whole) {
		return fmt.Errorf("%d tensors, want %d", got, len(whole))
	}
	return nil
}
