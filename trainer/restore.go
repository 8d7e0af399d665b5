package trainer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
)

// tensors are what a checkpoint holds, by name.
type tensors map[string]checkpoint.TensorInfo

func tensorsOf(c *checkpoint.Checkpoint) tensors {
	all := tensors{}
	for _, i := range c.Tensors() {
		all[i.Name] = i
	}
	return all
}

// readState fills this rank's arrays from c. Each must be there and fit, and c must hold none that no rank wants, or nothing is
// changed. wanted are the names of all ranks' arrays.
func (t *trainer) readState(ctx context.Context, c *checkpoint.Checkpoint, wanted []string) error {
	saved, own := tensorsOf(c), t.arrays()
	if err := fit(own, saved); err != nil {
		return err
	}
	if err := spare(saved, wanted); err != nil {
		return err
	}
	others := saved.replicas() != t.layout.replicas
	var targets []checkpoint.Target
	for _, a := range own {
		_, _, hook := parseHookName(a.Name)
		if _, there := saved[a.Name]; there && !(hook && others) {
			targets = append(targets, checkpoint.Target{Name: a.Name, Data: bytesOf(a.value)})
		}
	}
	if err := c.Read(ctx, targets); err != nil {
		return err
	}
	if others {
		return t.readResiduals(ctx, c, saved)
	}
	return nil
}

// wantedNames are the names of the arrays of all ranks, sorted. It is collective.
func (t *trainer) wantedNames(ctx context.Context) ([]string, error) {
	var own []string
	for _, a := range t.arrays() {
		own = append(own, a.Name)
	}
	lists, err := mpi.GatherObject(ctx, t.env.Comm, own, 0)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	return mpi.BroadcastObject(ctx, t.env.Comm, slices.Compact(all), 0)
}

// fit tells whether every array of this rank is in saved, in its shape.
func fit(own []array, saved tensors) error {
	for _, a := range own {
		there, ok := saved[a.Name]
		switch {
		case !ok && strings.HasPrefix(a.Name, hookPrefix): // of a replica that there was not: see readResiduals
		case !ok:
			return fmt.Errorf("%w: it has no %s", ErrMismatch, a.Name)
		case there.DType != "float32":
			return fmt.Errorf("%w: %s is %s, not float32", ErrMismatch, a.Name, there.DType)
		case !slices.Equal(there.Shape, a.Shape):
			return fmt.Errorf("%w: %s is %v in the checkpoint and %v here", ErrMismatch, a.Name, there.Shape, a.Shape)
		}
	}
	return nil
}

// spare tells whether saved has an array that no rank wants.
func spare(saved tensors, wanted []string) error {
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		if _, found := slices.BinarySearch(wanted, name); !found && !strings.HasPrefix(name, hookPrefix) {
			return fmt.Errorf("%w: it has %s, and nothing here has", ErrMismatch, name)
		}
	}
	return nil
}
