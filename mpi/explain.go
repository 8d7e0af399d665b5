package mpi

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/model"
)

// Prediction is the predicted time of one algorithm.
type Prediction struct {
	Algorithm string
	Time      time.Duration // 0 if the algorithm does not work for this number of ranks, or if there is only one rank
	Chosen    bool          // a call that does not name an algorithm uses this one
	Refused   string        // why it cannot be chosen; empty: it can
}

// Explain predicts, for every algorithm of a collective, how long it takes for a buffer of the given length in bytes. For collectives with
// blocks, such as gather and scatter, that is the length of all blocks together. Collectives have the names that errors show, such as
// "all_reduce". The names of GatherV, ScatterV and AllToAllV end with "_v". Reductions are predicted for a standard Op. Explain assumes
// that each rank has a core of its own.
func (c *Comm) Explain(collective string, bytes int) ([]Prediction, error) {
	name, ragged := strings.CutSuffix(collective, "_v")
	kind := allReduceCall
	for kind.String() != name {
		if kind++; int(kind) == len(collectives) {
			return nil, fmt.Errorf("explain: unknown collective %q", collective)
		}
	}
	if bytes < 0 {
		return nil, fmt.Errorf("explain %s: the length must not be negative, got %d", collective, bytes)
	}
	o := operation{kind: kind, ragged: ragged}
	if kind.descriptor().internal || len(o.algorithms()) == 0 {
		return nil, fmt.Errorf("explain: %s does not choose among algorithms", collective)
	}
	return c.core.explain(&o, bytes), nil
}

// explain predicts the algorithms of a table, and those that are not in a table.
func (k *core) explain(o *operation, n int) []Prediction {
	kind := o.kind
	if kind.descriptor().reduces {
		o.op = resolved{code: uint8(Sum), commutes: true}
	}
	chosen := ""
	var all []Prediction
	for _, p := range model.Predict(algorithm.TraitsOf(o.algorithms()), k.machine(kind, n), k.port.Size(), n, k.ordered(o)) {
		all = append(all, Prediction{Algorithm: p.Name, Time: seconds(p.Seconds), Refused: p.Refusal})
		if p.Chosen {
			chosen = p.Name
		}
	}
	if k.shares(o) {
		chosen = sharedName
		cost := kind.descriptor().sharedCost(k.machine(kind, n), k.node.Readable(), k.port.Size(), n)
		all = slices.Insert(all, 0, Prediction{Algorithm: sharedName, Time: seconds(cost)})
	}
	if h := k.hierarchy; h != nil && kind == allReduceCall {
		p, best := k.explainHierarchy(o, n)
		if best {
			chosen = hierarchicalName
		}
		all = slices.Insert(all, 0, p)
	}
	if k.config().Algorithm != "auto" && k.preferred(o) != "" {
		chosen = k.preferred(o)
	}
	for i := range all {
		all[i].Chosen = all[i].Algorithm == chosen
	}
	return all
}

// sharedCost predicts a collective that works directly in shared memory, for buffers that are not from Alloc. It scales the costs of
// messages: a flag arrives sooner than a message, and a long buffer is copied fewer times, only once if the collective moves data and the
// ranks can read each other's memory. The factors were measured with two ranks.
func (d *descriptor) sharedCost(m algorithm.Machine, readable bool, size, n int) float64 {
	const short, long = 64 << 10, 1 << 20                        // between them, chunks in the caches save time
	latency, beta := 0.6*float64(bits.Len(uint(size-1))), m.Both // flags pass in as many steps as messages
	if d.root == fromRoot || d.root == toRoot && !d.reduces {
		beta = m.Beta
	}
	moved := float64(n)
	if broadcast := d.root == fromRoot && !d.costByIn; !broadcast { // one block of each rank stays where it is
		moved *= float64(size-1) / float64(size)
	}
	saved := 0.4
	if readable && !d.reduces {
		saved = 0.8
	}
	moved -= saved * max(0, min(moved, long)-short)
	return latency*m.Alpha + moved*beta
}

// explainHierarchy also reports whether the hierarchy is predicted to be the best.
func (k *core) explainHierarchy(o *operation, n int) (Prediction, bool) {
	p := Prediction{Algorithm: hierarchicalName}
	if !k.hierarchy.canonical() && k.ordered(o) {
		p.Refused = "does not keep the canonical order, as the number of ranks on a machine is not a power of two"
		return p, false
	}
	_, _, cost, best := k.predictHierarchy(o, n)
	p.Time = seconds(cost)
	return p, best
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
