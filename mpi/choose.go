package mpi

import (
	"fmt"
	"slices"
	"time"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/model"
)

const (
	sharedName = "shm" // the algorithm that goes straight through the memory that all ranks share
	sharedCode = 255
)

// chosen are the algorithms of the call that runs.
type chosen struct {
	allReduce     algorithm.AllReduceFunc
	reduce        algorithm.ReduceFunc
	reduceScatter algorithm.ReduceScatterFunc
	scan          algorithm.ScanFunc
	broadcast     algorithm.BroadcastFunc
	allGather     algorithm.AllGatherFunc
	gather        algorithm.GatherFunc
	scatter       algorithm.ScatterFunc
	allToAll      algorithm.AllToAllFunc
	barrier       algorithm.BarrierFunc
}

// tables are the algorithms that there are; of some collectives, for blocks of one length and for others.
type tables struct {
	allReduces     []algorithm.Entry[algorithm.AllReduceFunc]
	reduces        []algorithm.Entry[algorithm.ReduceFunc]
	reduceScatters []algorithm.Entry[algorithm.ReduceScatterFunc]
	scans, exscans []algorithm.Entry[algorithm.ScanFunc]
	broadcasts     []algorithm.Entry[algorithm.BroadcastFunc]
	allGathers     []algorithm.Entry[algorithm.AllGatherFunc]
	gathers        [2][]algorithm.Entry[algorithm.GatherFunc]
	scatters       [2][]algorithm.Entry[algorithm.ScatterFunc]
	allToAlls      [2][]algorithm.Entry[algorithm.AllToAllFunc]
	barriers       []algorithm.Entry[algorithm.BarrierFunc]
}

func newTables() *tables {
	return &tables{
		allReduces: algorithm.AllReduces(), reduces: algorithm.Reduces(), reduceScatters: algorithm.ReduceScatters(),
		scans: algorithm.Scans(), exscans: algorithm.Exscans(), broadcasts: algorithm.Broadcasts(),
		allGathers: algorithm.AllGathers(), barriers: algorithm.Barriers(),
		gathers:   [2][]algorithm.Entry[algorithm.GatherFunc]{algorithm.Gathers(), algorithm.GathersV()},
		scatters:  [2][]algorithm.Entry[algorithm.ScatterFunc]{algorithm.Scatters(), algorithm.ScattersV()},
		allToAlls: [2][]algorithm.Entry[algorithm.AllToAllFunc]{algorithm.AllToAlls(), algorithm.AllToAllsV()},
	}
}

// choose picks the algorithm of a call: the one named, or else the one that is predicted to be fastest.
// All ranks come to the same choice, as they know the same.
func (k *core) choose(o *operation) error {
	if o.kind == monitoredCall {
		return nil
	}
	name := o.using
	if name == "" && k.config().Algorithm != "auto" {
		name = k.preferred(o)
	}
	if k.node != nil && o.canShare() && (name == "" || name == sharedName) {
		o.code, o.name = sharedCode, sharedName
		return nil
	}
	if name == sharedName {
		return fmt.Errorf("algorithm %q needs ranks that all share memory, and a collective that can use it", name)
	}
	f, t := &k.chosen, k.world.tables
	switch o.kind {
	case allReduceCall:
		return k.chooseAllReduce(o, name)
	case reduceCall:
		return pick(k, o, name, t.reduces, &f.reduce)
	case reduceScatterCall:
		return pick(k, o, name, t.reduceScatters, &f.reduceScatter)
	case scanCall:
		return pick(k, o, name, t.scans, &f.scan)
	case exscanCall:
		return pick(k, o, name, t.exscans, &f.scan)
	case broadcastCall:
		return pick(k, o, name, t.broadcasts, &f.broadcast)
	case allGatherCall, setupCall:
		return pick(k, o, name, t.allGathers, &f.allGather)
	case gatherCall:
		return pick(k, o, name, t.gathers[o.raggedIndex()], &f.gather)
	case scatterCall:
		return pick(k, o, name, t.scatters[o.raggedIndex()], &f.scatter)
	case allToAllCall:
		return pick(k, o, name, t.allToAlls[o.raggedIndex()], &f.allToAll)
	default:
		return pick(k, o, name, t.barriers, &f.barrier)
	}
}

// chooseAllReduce is choose's part for all-reduce, which has one algorithm more where the group lies evenly on several machines.
func (k *core) chooseAllReduce(o *operation, name string) error {
	f, t, h := &k.chosen, k.world.tables, k.hierarchy
	possible := h != nil && (h.canonical() || !k.ordered(o))
	switch {
	case name == hierarchicalName && !possible:
		return k.refuseHierarchy(o)
	case name != "" && name != hierarchicalName || !possible:
		return pick(k, o, name, t.allReduces, &f.allReduce)
	}
	n, far := len(o.out), k.world.far
	between := model.Choose(t.allReduces, far, len(h.cross), n/h.width, k.ordered(o))
	flat := model.Choose(t.allReduces, far, k.port.Size(), n, k.ordered(o))
	if name == "" && h.cost(between, far, n) > flat.Cost(far, k.port.Size(), n) {
		f.allReduce, o.code, o.name = flat.Run, flat.Code, flat.Name
		return nil
	}
	f.allReduce, o.code, o.name = between.Run, hierarchicalCode+between.Code, hierarchicalName
	return nil
}

func (k *core) refuseHierarchy(o *operation) error {
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

// pick sets run to the algorithm chosen from entries.
func pick[F any](k *core, o *operation, name string, entries []algorithm.Entry[F], run *F) error {
	var e algorithm.Entry[F]
	canonical := k.ordered(o)
	if name == "" {
		e = model.Choose(entries, k.machine(), k.port.Size(), o.bytes(), canonical)
	} else {
		var err error
		if e, err = model.Named(entries, name, k.port.Size(), canonical); err != nil {
			return err
		}
	}
	*run, o.code, o.name = e.Run, e.Code, e.Name
	return nil
}

// raggedIndex is which of two tables holds: that of blocks of one length, or that of blocks whose lengths not all ranks know.
func (o *operation) raggedIndex() int {
	if o.ragged {
		return 1
	}
	return 0
}

// canShare tells whether the operation can go straight through memory.
func (o *operation) canShare() bool {
	switch o.kind {
	case allReduceCall, reduceCall, reduceScatterCall, broadcastCall, allGatherCall, barrierCall:
		return true
	case allToAllCall:
		return !o.ragged // there is no telling whether the counts of two ranks agree
	}
	return false
}

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
		if _, err := model.Named(k.world.tables.allReduces, name, k.port.Size(), k.ordered(o)); err != nil {
			return ""
		}
	}
	return name
}

func (k *core) config() *Config { return &k.world.config }

// machine is what messages in this group cost: that of its slowest pair.
func (k *core) machine() algorithm.Machine {
	if k.spread {
		return k.world.far
	}
	return k.world.near
}

// traits is what there is to know of the algorithms of a collective; of one that has none: nothing.
func (t *tables) traits(kind collective) []algorithm.Traits {
	switch kind {
	case allReduceCall:
		return algorithm.TraitsOf(t.allReduces)
	case reduceCall:
		return algorithm.TraitsOf(t.reduces)
	case reduceScatterCall:
		return algorithm.TraitsOf(t.reduceScatters)
	case scanCall:
		return algorithm.TraitsOf(t.scans)
	case exscanCall:
		return algorithm.TraitsOf(t.exscans)
	case broadcastCall:
		return algorithm.TraitsOf(t.broadcasts)
	case allGatherCall:
		return algorithm.TraitsOf(t.allGathers)
	case gatherCall:
		return algorithm.TraitsOf(t.gathers[0])
	case scatterCall:
		return algorithm.TraitsOf(t.scatters[0])
	case allToAllCall:
		return algorithm.TraitsOf(t.allToAlls[0])
	case barrierCall:
		return algorithm.TraitsOf(t.barriers)
	}
	return nil
}

// algorithmName is the name of an algorithm's code, as it may come off the wire.
func algorithmName(kind collective, code uint8) string {
	between := ""
	switch {
	case code == sharedCode:
		return sharedName
	case code >= hierarchicalCode:
		code -= hierarchicalCode
		between = hierarchicalName + " and "
	}
	for _, a := range newTables().traits(kind) {
		if a.Code == code {
			return between + a.Name
		}
	}
	return fmt.Sprintf("%salgorithm %d", between, code)
}

// Prediction is what the model of messages' costs says of one algorithm.
type Prediction struct {
	Algorithm string
	Time      time.Duration // 0 where it is not known, or the algorithm does not work for this number of ranks
	Chosen    bool          // it is what a call gets that names none
	Refused   string        // why it may not be chosen; empty: it may
}

// Explain predicts, for every algorithm of a collective, how long it takes for a buffer of the given length in bytes: of a gather,
// scatter or the like, that of all blocks. Collectives have the names that errors show, such as "all_reduce"; reductions
// are predicted as of a standard Op.
func (c *Comm) Explain(collective string, bytes int) ([]Prediction, error) {
	kind := allReduceCall
	for kind.String() != collective {
		if kind++; int(kind) == len(collectiveNames) {
			return nil, fmt.Errorf("explain: there is no collective %q", collective)
		}
	}
	traits := c.core.world.tables.traits(kind)
	if len(traits) == 0 {
		return nil, fmt.Errorf("explain: %s has no choice of algorithms", collective)
	}
	return c.core.explain(kind, traits, bytes), nil
}

// explain predicts the algorithms of a table, and those that have none.
func (k *core) explain(kind collective, traits []algorithm.Traits, n int) []Prediction {
	o := operation{kind: kind}
	switch kind {
	case allReduceCall, reduceCall, reduceScatterCall, scanCall, exscanCall:
		o.op = resolved{code: uint8(Sum), commutes: true}
	}
	chosen := ""
	var all []Prediction
	for _, p := range model.Predict(traits, k.machine(), k.port.Size(), n, k.ordered(&o)) {
		all = append(all, Prediction{Algorithm: p.Name, Time: seconds(p.Seconds), Refused: p.Refusal})
		if p.Chosen {
			chosen = p.Name
		}
	}
	if k.node != nil && o.canShare() {
		chosen = sharedName
		all = slices.Insert(all, 0, Prediction{Algorithm: sharedName})
	}
	if h := k.hierarchy; h != nil && kind == allReduceCall {
		p, best := k.explainHierarchy(&o, n)
		if best {
			chosen = hierarchicalName
		}
		all = slices.Insert(all, 0, p)
	}
	if o := (operation{kind: kind, op: o.op}); k.config().Algorithm != "auto" && k.preferred(&o) != "" {
		chosen = k.preferred(&o)
	}
	for i := range all {
		all[i].Chosen = all[i].Algorithm == chosen
	}
	return all
}

// explainHierarchy also tells whether it is predicted to be the best.
func (k *core) explainHierarchy(o *operation, n int) (Prediction, bool) {
	h, t, far := k.hierarchy, k.world.tables, k.world.far
	p := Prediction{Algorithm: hierarchicalName}
	if !h.canonical() && k.ordered(o) {
		p.Refused = "does not keep the canonical order, as ranks on a machine are no power of two"
		return p, false
	}
	between := model.Choose(t.allReduces, far, len(h.cross), n/h.width, k.ordered(o))
	flat := model.Choose(t.allReduces, far, k.port.Size(), n, k.ordered(o))
	cost := h.cost(between, far, n)
	p.Time = seconds(cost)
	return p, cost <= flat.Cost(far, k.port.Size(), n)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
