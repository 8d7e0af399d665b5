package trainer

import (
	"context"
	"unsafe"

	"ddpbatch/checkpoint/distributed"
	"ddpbatch/mpi"
	"ddpbatch/trainer/ddp"
)

// array is a named array of the state, by reference.
type array struct {
	Name  string
	Shape []int
	value []float32
	owner owner
}

// owner says who puts an array into a checkpoint. All who hold one get it back from there.
type owner int

const (
	another owner = iota // what this rank holds does not count
	own                  // this rank alone
	shared               // every rank that has it holds the same, and they share the work
)

// arrays are what this rank holds of the state: parameters and buffers of its layers, what the optimizer keeps for those that it
// steps, and what only this rank has. Names are unique over all ranks, but for copies.
func (t *trainer) arrays() []array {
	var list []array
	model := t.engine.model()
	for _, p := range model.Params() {
		list = append(list, array{"model." + p.Name, p.Shape, p.Value, shared})
	}
	buffers := another // running statistics are each replica's own, and the first one's count
	if t.layout.replica == 0 {
		buffers = own
	}
	for _, b := range model.Buffers() {
		list = append(list, array{"model." + b.Name, b.Shape, b.Value, buffers})
	}
	slots := shared
	if t.cfg.Optimizer.Zero {
		slots = own
	}
	for _, s := range t.optimizer.State() {
		list = append(list, array{"optimizer." + s.Name, s.Shape, s.Value, slots})
	}
	if t.scaler != nil {
		for _, s := range t.scaler.State() {
			list = append(list, array{"optimizer." + s.Name, s.Shape, s.Value, shared})
		}
	}
	for _, s := range t.hookState() {
		list = append(list, array{hookName(t.layout.replica, s.Name), s.Shape, s.Value, t.hookOwner(s)})
	}
	return list
}

// hookOwner is who saves what a hook keeps: this replica, all of whose stages share what is of the whole model. A stage without parameters has
// never used it.
func (t *trainer) hookOwner(s ddp.State) owner {
	switch {
	case !s.Whole || t.layout.line == nil:
		return own
	case len(t.params) == 0:
		return another
	}
	return shared
}

// hookState is what the communication hook keeps on this replica.
func (t *trainer) hookState() []ddp.State {
	if t.hook == nil {
		return nil
	}
	return t.hook.State()
}

// savedArrays are those of arrays that this rank saves. What a hook keeps may move in memory between steps: its arrays are copies here, which
// copyHookState refreshes.
func (t *trainer) savedArrays() []distributed.Array {
	var list []distributed.Array
	t.hookCopies = map[string][]float32{}
	for _, a := range t.arrays() {
		if a.owner == another {
			continue
		}
		if _, name, ok := parseHookName(a.Name); ok {
			a.value = make([]float32, len(a.value))
			t.hookCopies[name] = a.value
		}
		list = append(list, distributed.Array{
			Name: a.Name, DType: "float32", Shape: a.Shape, Data: bytesOf(a.value), Replicated: a.owner == shared,
		})
	}
	return list
}

func (t *trainer) copyHookState() {
	for _, s := range t.hookState() {
		copy(t.hookCopies[s.Name], s.Value)
	}
}

// hookBytes is the memory of those copies.
func (t *trainer) hookBytes() (n int64) {
	for _, c := range t.hookCopies {
		n += 4 * int64(len(c))
	}
	return n
}

// totalBytes is what all ranks save together: what several hold alike counts once. It is collective.
func (t *trainer) totalBytes(ctx context.Context, arrays []distributed.Array) (float64, error) {
	sum := make([]float64, 1)
	for _, a := range arrays {
		share := float64(len(a.Data))
		if a.Replicated {
			share /= float64(t.layout.replicas)
		}
		sum[0] += share
	}
	err := mpi.AllReduce(ctx, t.env.Comm, sum, mpi.Sum)
	return sum[0], err
}

// bytesOf is the memory of v, which is little-endian wherever ranks can meet (see mpi.Init).
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
