package mpi

import (
	"fmt"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/model"
)

const (
	sharedName = "shm" // the algorithm that works directly in the memory that all ranks share
	sharedCode = 255
)

// choose picks the algorithm of a call: the one that is named, or else the one that is predicted to be the fastest. All ranks make the same
// choice, because they use the same data.
func (k *core) choose(o *operation) error {
	if o.kind == monitoredCall { // it does not use an algorithm from a table
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
		return fmt.Errorf("algorithm %q works only for ranks that all share memory, and not for every collective", name)
	}
	if o.kind == allReduceCall {
		return k.chooseAllReduce(o, name)
	}
	return k.pick(o, name, o.algorithms())
}

// chooseAllReduce is choose for all-reduce, which has one more algorithm if the group has equally many ranks on each of several machines.
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

// predictHierarchy predicts the cost of an all-reduce of n bytes in the hierarchy, with the best algorithm between machines. It also
// returns the best flat algorithm, which ignores machines. best reports whether the hierarchy costs no more than that one.
func (k *core) predictHierarchy(o *operation, n int) (between, flat algorithm.Entry[runFunc], cost float64, best bool) {
	h, table, far, size := k.hierarchy, o.algorithms(), k.world.far.At(n), k.port.Size()
	between = model.Choose(table, far, len(h.cross), n/h.width, k.ordered(o))
	flat = model.Choose(table, far, size, n, k.ordered(o))
	cost = h.cost(between, far, n)
	return between, flat, cost, cost <= flat.Cost(far, size, n)
}

func (k *core) refuseHierarchy() error {
	if k.hierarchy != nil {
		return fmt.Errorf("algorithm %q keeps the canonical order only if each machine has a power of two of ranks: "+
			"set deterministic = false, or name another algorithm", hierarchicalName)
	}
	return fmt.Errorf("algorithm %q requires the same number of ranks on each of several machines: at least two on each, numbered "+
		"one machine after another, and sharing memory", hierarchicalName)
}

// ordered reports whether a reduction must keep the canonical order.
func (k *core) ordered(o *operation) bool {
	return o.op.code != 0 && (k.config().Deterministic || !o.op.commutes)
}

// pick takes the algorithm that is named, or else the one that is predicted to be the fastest.
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

// algorithms returns the algorithms that the operation may use.
func (o *operation) algorithms() []algorithm.Entry[runFunc] {
	if o.ragged {
		return o.kind.descriptor().algorithms[1]
	}
	return o.kind.descriptor().algorithms[0]
}

// shares reports whether the operation can work directly in shared memory.
func (k *core) shares(o *operation) bool { return k.node != nil && o.shared() != nil }

// preferred returns the algorithm of the configuration, or "" if this collective does not have it or it does not work for this group. A
// group that Split or Shrink has made can differ from that of all ranks. For "", the model chooses.
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

// machine returns the costs of messages in a collective of n bytes, those of the slowest kind of link that it uses. Costs are means over
// ranks: over a network, some of the ranks that return early have almost no latency.
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
