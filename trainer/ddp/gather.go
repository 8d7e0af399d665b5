package ddp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ddpbatch/mpi"
)

// GatherStates puts the States of a Hook on all ranks together for a checkpoint: each becomes one array with the ranks in
// front, [world, shape...]. Rank 0 gets them, the others nil. All ranks call it with States of equal names and shapes.
func GatherStates(ctx context.Context, comm *mpi.Comm, own []State) ([]State, error) {
	var all []State
	for _, s := range own {
		var out []float32
		if comm.Rank() == 0 {
			out = make([]float32, comm.Size()*len(s.Value))
			all = append(all, State{Name: s.Name, Shape: slices.Concat([]int{comm.Size()}, s.Shape), Value: out})
		}
		if err := mpi.Gather(ctx, comm, out, s.Value, 0); err != nil {
			return nil, fmt.Errorf("gather %s: %w", s.Name, err)
		}
	}
	return all, nil
}

// RestoreStates is the reverse: rank 0 gives what GatherStates gave it, in any order, with or without other arrays, and every rank's
// own States get their values. With another number of ranks than it was gathered from, every rank gets the mean
// over those: what is the same on all ranks stays so, and residuals keep their mean, which is what gradients are lacking.
//
// Where an array is missing or of another shape, all ranks get the error and nothing is changed.
func RestoreStates(ctx context.Context, comm *mpi.Comm, own, saved []State) error {
	sources, err := make([]State, len(own)), error(nil)
	if comm.Rank() == 0 {
		sources, err = matchRanks(own, saved)
	}
	if err := tellFromRank0(ctx, comm, err); err != nil {
		return fmt.Errorf("restore the state of the communication hook: %w", err)
	}
	for i, s := range own {
		err := restore(ctx, comm, s.Value, sources[i].Value)
		if err != nil {
			return fmt.Errorf("restore %s: %w", s.Name, err)
		}
	}
	return nil
}

// matchRanks finds the array that belongs to each of own.
func matchRanks(own, saved []State) ([]State, error) {
	found := make([]State, len(own))
	for i, s := range own {
		at := slices.IndexFunc(saved, func(x State) bool { return x.Name == s.Name })
		if at < 0 {
			return nil, fmt.Errorf("the checkpoint has no %s; was it saved with another communication hook?", s.Name)
		}
		found[i] = saved[at]
		shape := found[i].Shape
		if len(shape) == 0 || shape[0] < 1 || !slices.Equal(shape[1:], s.Shape) || shape[0] != found[0].Shape[0] ||
			len(found[i].Value) != shape[0]*len(s.Value) {
			return nil, fmt.Errorf("%s is %v in the checkpoint, with %d elements, which is not one of %v for each rank",
				s.Name, shape, len(found[i].Value), s.Shape)
		}
	}
	return found, nil
}

// restore fills own on every rank from what rank 0 has of all ranks.
func restore(ctx context.Context, comm *mpi.Comm, own, saved []float32) error {
	same := []int64{0}
	if comm.Rank() == 0 && len(saved) == comm.Size()*len(own) {
		same[0] = 1
	}
	if err := mpi.Broadcast(ctx, comm, same, 0); err != nil {
		return err
	}
	if same[0] == 1 {
		return mpi.Scatter(ctx, comm, own, saved, 0)
	}
	if comm.Rank() == 0 {
		meanOfRanks(own, saved)
	}
	return mpi.Broadcast(ctx, comm, own, 0)
}

// meanOfRanks adds in float64, so that equal values stay what they are.
func meanOfRanks(dst, saved []float32) {
	world := len(saved) / max(len(dst), 1)
	for i := range dst {
		sum := 0.0
		for rank := range world {
			sum += float64(saved[rank*len(dst)+i])
		}
		dst[i] = float32(sum / float64(world))
	}
}

// tellFromRank0 gives all ranks the error that rank 0 has, as text, or nil.
func tellFromRank0(ctx context.Context, comm *mpi.Comm, err error) error {
	text := ""
	if err != nil {
		text = err.Error()
	}
	told, failure := mpi.BroadcastObject(ctx, comm, text, 0)
	if failure != nil {
		return failure
	}
	if told != "" && err == nil {
		err = errors.New("rank 0: " + told)
	}
	return err
}
