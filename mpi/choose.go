package mpi

import (
	"fmt"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/model"
)

const (
	sharedName = "shm" // the algorithm that goes straight through the memory that all ranks share
	sharedCode = 255
)

// choose picks the algorithm of a call: the one named, or else the one that is predicted to be fastest.
// All ranks come to the same choice, as they know the same.
func (k *core) choose(o *operation) error {
	if o.kind == monitoredCall { // it has a way of its own
		return nil
	}
	name := o.using
	if name == "" && k.config().Algorithm != "auto" {
		name = k.preferred(o)
	}
	if (name == "" || name == sharedName) && k.shares(o) {
		o.code, o.name = sharedCode, sharedName
		return nil
	}
	if name == sharedName {
		return fmt.Errorf("algorithm %q needs ranks that all share memory, and a collective that can use it", name)
	}
	if o.kind == allReduceCall {
		return k.chooseAllReduce(o, name)
	}
	return k.pick(o, name, o.algorithms())
}

// chooseAllReduce is choose's part for all-reduce, which has one algorithm more where the group lies evenly on several machines.
func (k *core) chooseAllReduce(o *operation, name string) error {
	h := k.hierarchy
	possible := h != nil && (h.canonical() || !k.ordered(o))
	switch {
	case name == hierarchicalName && !possible:
		return k.refuseHierarchy()
	case name != "" && name != hierarchicalName || !possible:
		return k.pick(o, name, o.algorithms())
	}
	between, flat, _, best := k.predictHierarchy(o, len(o.out))
	if name == "" && !best {
		k.chosen, o.code, o.name = flat.Run, flat.Code, flat.Name
		return nil
	}
	k.chosen, o.code, o.name = between.Run, hierarchicalCode+between.Code, hierarchicalName
	return nil
}

// predictHierarchy predicts what an all-reduce of n bytes costs in the hierarchy, with the best algorithm between machines, and whether
// that is best: the flat algorithm, which knows no machines, costs no less.
func (k *core) predictHierarchy(o *operation, n int) (between, flat algorithm.Entry[runFunc], cost float64, best bool) {
	h, table, far, size := k.hierarchy, o.algorithms(), k.world.far.At(n), k.port.Size()
	between = model.Choose(table, far, len(h.cross), n/h.width, k.ordered(o))
	flat = model.Choose(table, far, size, n, k.ordered(o))
	cost = h.cost(between, far, n)
	return between, flat, cost, cost <= flat.Cost(far, size, n)
}

func (k *core) refuseHierarchy() error {
	if k.hierarchy != nil {
		return fmt.Errorf("algorithm %q keeps the canonical order only with a power of two of ranks on each machine: "+
			"set deterministic = false, or name another", hierarchicalName)
	}
	return fmt.Errorf("algorithm %q needs ranks on several machines: the same number on each, at least two, "+
		"one machine's after another's, that share memory", hierarchicalName)
}

// ordered tells whether a reduction must keep the canonical order.
func (k *core) ordered(o *operation) bool {
	return o.op.code != 0 && (k.config().Deterministic || !o.op.commutes)
}

// pick takes the algorithm that is named, or else the one that is predicted to be fastest.
func (k *core) pick(o *operation, name string, table []algorithm.Entry[runFunc]) error {
	var e algorithm.Entry[runFunc]
	canonical := k.ordered(o)
	if name == "" {
		e = model.Choose(table, k.machine(o.kind, o.bytes()), k.port.Size(), o.bytes(), canonical)
	} else {
		var err error
		if e, err = model.Named(table, name, k.port.Size(), canonical); err != nil {
			return err
		}
	}
	k.chosen, o.code, o.name = e.Run, e.Code, e.Name
	return nil
}

// algorithms are those that the operation may go by.
func (o *operation) algorithms() []algorithm.Entry[runFunc] {
	if o.ragged {
		return o.kind.descriptor().algorithms[1]
	}
	return o.kind.descriptor().algorithms[0]
}

// shares reports whether the operation can go straight through shared memory.
func (k *core) shares(o *operation) bool { return k.node != nil && o.shared() != nil }

// preferred is the algorithm of the configuration, as far as this collective has it and it works for this group: one that was made
// by Split or Shrink can be of another kind than that of all ranks. Then the model chooses.
func (k *core) preferred(o *operation) string {
	name := k.config().Algorithm
	switch {
	case o.kind != allReduceCall:
		return ""
	case name == sharedName:
		if k.node == nil {
			return ""
		}
	case name == hierarchicalName:
		if h := k.hierarchy; h == nil || !h.canonical() && k.ordered(o) {
			return ""
		}
	default:
		if _, err := model.Named(o.algorithms(), name, k.port.Size(), k.ordered(o)); err != nil {
			return ""
		}
	}
	return name
}

func (k *core) config() *Config { return &k.world.config }

// machine is what messages cost in a collective of n bytes: those of its slowest kind of link. Costs are means over ranks: where messages
// go by a network, some of the ranks that return early have next to no latency.
func (k *core) machine(kind collective, n int) algorithm.Machine {
	costs := &k.world.near
	if k.spread {
		costs = &k.world.far
	}
	m := costs.At(n)
	if kind.descriptor().early && k.node == nil {
		m.Alpha *= earlyShare
	}
	return m
}

// earlyShare is the mean latency of a collective whose ranks return early, as a share of that of one whose ranks wait for each other.
// Measured: 0.5 to 0.7.
const earlyShare = 0.65
