package trainer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
)

// collect gathers, on rank 0, all arrays of the state from the ranks that own them; other ranks get nil. It is
// collective. Where one rank owns all, nothing is sent but the lists.
func (t *trainer) collect(ctx context.Context) ([]checkpoint.Tensor, error) {
	comm := t.env.Comm
	own := slices.DeleteFunc(t.arrays(), func(a array) bool { return !a.owner })
	lists, err := mpi.GatherObject(ctx, comm, own, 0)
	if err != nil {
		return nil, fmt.Errorf("collect the state: %w", err)
	}
	if comm.Rank() != 0 {
		for _, a := range own {
			if err := mpi.Send(ctx, comm, a.value, 0, collectTag); err != nil {
				return nil, fmt.Errorf("collect the state: send %s: %w", a.Name, err)
			}
		}
		return nil, nil
	}
	var tensors []checkpoint.Tensor
	for _, a := range own {
		tensors = append(tensors, checkpoint.Float32Tensor(a.Name, a.Shape, a.value))
	}
	for rank, list := range lists[1:] {
		for _, a := range list {
			values := make([]float32, elements(a.Shape))
			if _, err := mpi.Recv(ctx, comm, values, rank+1, collectTag); err != nil {
				return nil, fmt.Errorf("collect the state: receive %s: %w", a.Name, err)
			}
			tensors = append(tensors, checkpoint.Float32Tensor(a.Name, a.Shape, values))
		}
	}
	return tensors, nil
}

// collectTag marks messages that bring arrays to rank 0; pipelines have groups of their own.
const collectTag = 1

// spread gives every rank those of rank 0's tensors that it has arrays for; the others' tensors do not count. Each array must be
// there and fit, or nothing is changed and every rank gets an error. It is collective.
func (t *trainer) spread(ctx context.Context, tensors []checkpoint.Tensor) error {
	comm := t.env.Comm
	var list []array
	for _, tensor := range tensors {
		list = append(list, array{Name: tensor.Name, Shape: tensor.Shape})
	}
	list, err := mpi.BroadcastObject(ctx, comm, list, 0)
	if err != nil {
		return fmt.Errorf("spread the state: %w", err)
	}
	wanted := t.arrays()
	all, err := mpi.GatherObject(ctx, comm, names(wanted), 0)
	if err != nil {
		return fmt.Errorf("spread the state: %w", err)
	}
	if err = fit(wanted, list); err == nil && comm.Rank() == 0 {
		err = spare(list, slices.Concat(all...))
	}
	if err := together(ctx, comm, err); err != nil {
		return err
	}
	to := map[string][]float32{}
	for _, a := range wanted {
		to[a.Name] = a.value
	}
	residuals := newResiduals(t, list)
	for i, a := range list {
		value := to[a.Name]
		if value == nil || residuals.own != nil && strings.HasPrefix(a.Name, hookPrefix) {
			value = make([]float32, elements(a.Shape))
		}
		if comm.Rank() == 0 {
			if err := tensors[i].Float32s(value); err != nil {
				return err // fit has seen that all are float32
			}
		}
		if err := mpi.Broadcast(ctx, comm, value, 0); err != nil {
			return fmt.Errorf("spread the state: %s: %w", a.Name, err)
		}
		residuals.add(a.Name, value)
	}
	residuals.share()
	return nil
}

// fit tells whether every wanted array is in list, in its shape.
func fit(wanted, list []array) error {
	there := map[string]array{}
	for _, a := range list {
		there[a.Name] = a
	}
	for _, a := range wanted {
		saved, ok := there[a.Name]
		switch {
		case !ok && strings.HasPrefix(a.Name, hookPrefix): // of a replica that there was not: see residuals
		case !ok:
			return fmt.Errorf("%w: it has no %s", ErrMismatch, a.Name)
		case !slices.Equal(saved.Shape, a.Shape):
			return fmt.Errorf("%w: %s is %v in the checkpoint and %v here", ErrMismatch, a.Name, saved.Shape, a.Shape)
		}
	}
	return nil
}

// spare tells whether list has an array that no rank wants.
func spare(list []array, wanted []string) error {
	for _, a := range list {
		if !slices.Contains(wanted, a.Name) && !strings.HasPrefix(a.Name, hookPrefix) {
			return fmt.Errorf("%w: it has %s, and nothing here has", ErrMismatch, a.Name)
		}
	}
	return nil
}

func names(arrays []array) []string {
	var all []string
	for _, a := range arrays {
		all = append(all, a.Name)
	}
	return all
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
