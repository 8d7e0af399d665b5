package ddp

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"ddpbatch/mpi"
)

// slot describes a State to another rank.
type slot struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	Size  int    `json:"size"`
}

// GatherState puts the optimizers' whole state together on rank 0, sorted by name: the same arrays with any number of ranks. Each
// rank gives the state of its own optimizer. The others get nil.
func (z *Zero[T]) GatherState(ctx context.Context, own []State) ([]State, error) {
	slots, counts, err := z.slots(ctx, own)
	if err != nil {
		return nil, fmt.Errorf("zero: gather the optimizer's state: %w", err)
	}
	total := 0 // none but on rank 0
	for _, n := range counts {
		total += n
	}
	all := make([]float32, total)
	if err := mpi.GatherV(ctx, z.comm, all, flatten(own), counts, 0); err != nil {
		return nil, fmt.Errorf("zero: gather the optimizer's state: %w", err)
	}
	var states []State
	for _, s := range slots {
		states = append(states, State{Name: s.Name, Shape: s.Shape, Value: all[:s.Size:s.Size]})
		all = all[s.Size:]
	}
	slices.SortFunc(states, func(a, b State) int { return cmp.Compare(a.Name, b.Name) })
	return states, nil
}

// RestoreState is the reverse: rank 0 gives the whole state, in any order, with or without other arrays, and each rank its own
// optimizer's, which are filled. Where one is missing or of another shape, all ranks get the error and nothing is changed.
func (z *Zero[T]) RestoreState(ctx context.Context, own, saved []State) error {
	slots, counts, err := z.slots(ctx, own)
	if err != nil {
		return fmt.Errorf("zero: restore the optimizer's state: %w", err)
	}
	var all []float32
	for _, s := range slots { // none but on rank 0
		at := slices.IndexFunc(saved, func(x State) bool { return x.Name == s.Name })
		if at < 0 {
			err = fmt.Errorf("the checkpoint has no %s; was it saved with another optimizer?", s.Name)
			break
		}
		if x := saved[at]; !slices.Equal(x.Shape, s.Shape) || len(x.Value) != s.Size {
			err = fmt.Errorf("%s is %v in the checkpoint and %v here", s.Name, x.Shape, s.Shape)
			break
		}
		all = append(all, saved[at].Value...)
	}
	if err := tellFromRank0(ctx, z.comm, err); err != nil {
		return fmt.Errorf("zero: restore the optimizer's state: %w", err)
	}
	size := 0
	for _, s := range own {
		size += len(s.Value)
	}
	flat := make([]float32, size)
	if err := mpi.ScatterV(ctx, z.comm, flat, all, counts, 0); err != nil {
		return fmt.Errorf("zero: restore the optimizer's state: %w", err)
	}
	for _, s := range own {
		flat = flat[copy(s.Value, flat):]
	}
	return nil
}

// slots tells rank 0 what States all ranks have, in the order of ranks, and how many elements each rank.
func (z *Zero[T]) slots(ctx context.Context, own []State) (all []slot, counts []int, err error) {
	mine := make([]slot, len(own))
	for i, s := range own {
		mine[i] = slot{s.Name, s.Shape, len(s.Value)}
	}
	ranks, err := mpi.GatherObject(ctx, z.comm, mine, 0)
	if err != nil {
		return nil, nil, err
	}
	counts = make([]int, z.comm.Size())
	for rank, slots := range ranks {
		for _, s := range slots {
			counts[rank] += s.Size
		}
		all = append(all, slots...)
	}
	return all, counts, nil
}

// flatten puts the values of states together.
func flatten(states []State) []float32 {
	var flat []float32
	for _, s := range states {
		flat = append(flat, s.Value...)
	}
	return flat
}
