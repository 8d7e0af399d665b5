package mpi

import (
	"fmt"
	"time"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/model"
)

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
	k, t := c.core, c.core.world.tables
	switch collective {
	case allReduceCall.String():
		return explain(k, allReduceCall, t.allReduces, bytes), nil
	case reduceCall.String():
		return explain(k, reduceCall, t.reduces, bytes), nil
	case reduceScatterCall.String():
		return explain(k, reduceScatterCall, t.reduceScatters, bytes), nil
	case scanCall.String():
		return explain(k, scanCall, t.scans, bytes), nil
	case exscanCall.String():
		return explain(k, exscanCall, t.exscans, bytes), nil
	case broadcastCall.String():
		return explain(k, broadcastCall, t.broadcasts, bytes), nil
	case allGatherCall.String():
		return explain(k, allGatherCall, t.allGathers, bytes), nil
	case gatherCall.String():
		return explain(k, gatherCall, t.gathers[0], bytes), nil
	case scatterCall.String():
		return explain(k, scatterCall, t.scatters[0], bytes), nil
	case allToAllCall.String():
		return explain(k, allToAllCall, t.allToAlls[0], bytes), nil
	case barrierCall.String():
		return explain(k, barrierCall, t.barriers, bytes), nil
	}
	return nil, fmt.Errorf("explain: there is no collective %q with a choice of algorithms", collective)
}

// explain predicts the algorithms of a table, and those that have none.
func explain[F any](k *core, kind collective, entries []algorithm.Entry[F], n int) []Prediction {
	o := operation{kind: kind}
	switch kind {
	case allReduceCall, reduceCall, reduceScatterCall, scanCall, exscanCall:
		o.op = resolved{code: uint8(Sum), commutes: true}
	}
	m, size := k.machine(), k.port.Size()
	chosen := model.Choose(entries, m, size, n, k.ordered(&o)).Name
	var all []Prediction
	if k.node != nil && o.canShare() {
		chosen = sharedName
		all = append(all, Prediction{Algorithm: sharedName})
	}
	if h := k.hierarchy; h != nil && kind == allReduceCall {
		p, best := k.explainHierarchy(&o, n)
		if best {
			chosen = hierarchicalName
		}
		all = append(all, p)
	}
	for _, p := range model.Predict(entries, m, size, n, k.ordered(&o)) {
		all = append(all, Prediction{Algorithm: p.Name, Time: seconds(p.Seconds), Refused: p.Refusal})
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
