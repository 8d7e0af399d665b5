package ddp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ddpbatch/mpi"
)

// With another number of ranks each gets the mean residual, and what all ranks share stays as it was.
func TestStatesMoveBetweenWorlds(t *testing.T) {
	const steps = 3
	for _, name := range []string{"int8", "powersgd"} {
		for _, worlds := range [][2]int{{1, 3}, {2, 4}, {3, 2}, {4, 1}} {
			var saved []State
			onWorld(t, worlds[0], func(ctx context.Context, comm *mpi.Comm) error {
				params, buckets := newReplica(2, shapes...)
				h := hooks[name]()
				if err := h.Bind(ctx, comm, buckets); err != nil {
					return err
				}
				for step := range steps {
					fill(params, comm.Rank(), step)
					if err := reduceAll(ctx, comm, h, buckets); err != nil {
						return err
					}
				}
				states, err := GatherStates(ctx, comm, h.State())
				if comm.Rank() == 0 {
					saved = states
				} else if states != nil {
					return errors.New("got the states of all")
				}
				return err
			})
			onWorld(t, worlds[1], func(ctx context.Context, comm *mpi.Comm) error {
				_, buckets := newReplica(3, shapes...)
				h := hooks[name]()
				if err := h.Bind(ctx, comm, buckets); err != nil {
					return err
				}
				given := saved
				if comm.Rank() > 0 {
					given = nil // rank 0 alone reads checkpoints
				}
				if err := RestoreStates(ctx, comm, h.State(), given); err != nil {
					return err
				}
				for i, s := range h.State() {
					for j, v := range s.Value {
						mean := 0.0
						for rank := range worlds[0] {
							mean += float64(saved[i].Value[rank*len(s.Value)+j]) / float64(worlds[0])
						}
						if !strings.HasPrefix(s.Name, "residual.") && v != saved[i].Value[j] {
							return fmt.Errorf("%s: element %d is %v, want %v", s.Name, j, v, saved[i].Value[j])
						}
						if math.Abs(mean-float64(v)) > 0x1p-23*math.Abs(mean) {
							return fmt.Errorf("%s: element %d is %v, the mean is %v", s.Name, j, v, mean)
						}
					}
				}
				return nil
			})
		}
	}
}

// All ranks hear of what is wrong with a checkpoint, and nothing is changed.
func TestRestoreStatesRefusesOthers(t *testing.T) {
	const world = 3
	good := []State{{"a", []int{world, 2}, make([]float32, 2*world)}, {"b", []int{world}, make([]float32, world)}}
	replace := func(s State) []State { return []State{good[0], s} }
	for want, saved := range map[string][]State{
		"no a":                          nil,
		"no b":                          good[:1],
		"b is [3 1] in the checkpoint":  replace(State{"b", []int{world, 1}, make([]float32, world)}),
		"b is [] in the checkpoint":     replace(State{"b", []int{}, make([]float32, 1)}),
		"b is [0] in the checkpoint":    replace(State{"b", []int{0}, nil}),
		"b is [2] in the checkpoint":    replace(State{"b", []int{2}, make([]float32, 2)}), // two ranks' b, three ranks' a
		"[3] in the checkpoint, with 2": replace(State{"b", []int{3}, make([]float32, 2)}),
	} {
		for rank, err := range ranks(t, world, func(ctx context.Context, comm *mpi.Comm) error {
			own := []State{{"a", []int{2}, []float32{1, 2}}, {"b", []int{}, []float32{3}}}
			err := RestoreStates(ctx, comm, own, saved)
			if !slices.Equal(own[0].Value, []float32{1, 2}) || own[1].Value[0] != 3 {
				return errors.New("values have changed")
			}
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: error %v, want %q", rank, err, want)
			}
		}
	}
}
