package trainer

import (
	"ddpbatch/trainer/ddp"
)

// array is a named array of the state, by reference.
type array struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	value []float32
	owner bool // whether this rank's copy is the one that is saved; other ranks have the same
}

// arrays are what this rank holds of the state: parameters and buffers of its layers, what the optimizer keeps for those that it
// steps, and what only this rank has. Names are unique over all ranks, but for copies.
func (t *trainer) arrays() []array {
	var all []array
	first := t.layout.replica == 0
	model := t.engine.model()
	for _, p := range model.Params() {
		all = append(all, array{"model." + p.Name, p.Shape, p.Value, first})
	}
	for _, b := range model.Buffers() {
		all = append(all, array{"model." + b.Name, b.Shape, b.Value, first})
	}
	for _, s := range t.optimizer.State() {
		all = append(all, array{"optimizer." + s.Name, s.Shape, s.Value, first || t.cfg.Optimizer.Zero})
	}
	if t.scaler != nil {
		for _, s := range t.scaler.State() {
			all = append(all, array{"optimizer." + s.Name, s.Shape, s.Value, t.env.Comm.Rank() == 0})
		}
	}
	for _, s := range t.hookState() {
		all = append(all, array{hookName(t.layout.replica, s.Name), s.Shape, s.Value, true})
	}
	return all
}

// hookState is what the communication hook keeps on this replica.
func (t *trainer) hookState() []ddp.State {
	if t.hook == nil {
		return nil
	}
	return t.hook.State()
}
