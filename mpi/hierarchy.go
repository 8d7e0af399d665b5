package mpi

import (
	"context"
	"slices"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/shm"
)

const (
	hierarchicalName = "hierarchical" // all-reduce in steps: within machines, between them, within them
	hierarchicalCode = 128            // and up: plus that of the algorithm between machines
)

// hierarchy is a group whose ranks are on several machines: the same number on each, more than one, and one machine's after
// another's.
type hierarchy struct {
	node  *shm.Node // the ranks of this machine
	local int       // this rank's place among them
	width int       // how many there are
	cross []int     // the ranks with the same place, one of each machine, in order

	between crossPort // to these
}

// shareMachines lays memory under the ranks of each machine of a group that is spread over several, if it lies on them evenly and all
// ranks manage to. k is the group in which target's is made.
func (k *core) shareMachines(ctx context.Context, target *core) error {
	machines := make([]int, len(k.members))
	for i, rank := range k.members {
		machines[i] = k.world.machines[rank]
	}
	rank := k.group.Rank()
	h := newHierarchy(machines, rank)
	if h == nil || h.width > shm.MaxRanks {
		return nil
	}
	first := rank - h.local
	areas, readable, err := k.shareSegments(ctx, shm.AreaSize, first, first+h.width)
	if err != nil || areas == nil {
		return err
	}
	target.memory = append(target.memory, areas...)
	if h.node, err = shm.NewNode(h.local, areas, readable); err != nil {
		return err
	}
	h.between = crossPort{port: &target.port, ranks: h.cross, rank: rank / h.width}
	target.hierarchy = h
	return nil
}

// newHierarchy finds out how the group lies on machines, where machines[i] tells that of rank i; nil: in no such way.
func newHierarchy(machines []int, rank int) *hierarchy {
	width := slices.IndexFunc(machines, func(m int) bool { return m != machines[0] })
	if width < 2 || len(machines)%width != 0 {
		return nil
	}
	var seen []int
	for first := 0; first < len(machines); first += width {
		part := machines[first:][:width]
		if slices.Contains(seen, part[0]) || slices.ContainsFunc(part, func(m int) bool { return m != part[0] }) {
			return nil
		}
		seen = append(seen, part[0])
	}
	h := &hierarchy{local: rank % width, width: width}
	for first := 0; first < len(machines); first += width {
		h.cross = append(h.cross, first+h.local)
	}
	return h
}

// canonical tells whether reducing by machines first keeps the canonical order: where each machine's ranks are a whole
// subtree.
func (h *hierarchy) canonical() bool { return h.width&(h.width-1) == 0 }

// cost predicts an all-reduce of n bytes: all of it goes through memory twice, and each rank's part over the network.
func (h *hierarchy) cost(between algorithm.Entry[runFunc], m algorithm.Machine, n int) float64 {
	const flags = 4 * 0.5e-6 // the exchanges within the machine, at what a hop through memory takes
	return flags + 3*float64(n)*m.Gamma + between.Cost(m, len(h.cross), n/h.width)
}

// runHierarchical reduces within the machine, so that each of its ranks has one part of the sum; all-reduces that part with
// the ranks that have the same of other machines; and gathers the parts within the machine again.
func (k *core) runHierarchical(b *buffers) error {
	h, w, fingerprint := k.hierarchy, nodeWaiter{k}, fingerprintOf(&k.call)
	r := b.sharedReduction()
	at := k.parts.ofElements(len(b.out), r.Size, h.width)
	whole, part := b.out, k.port.Scratch(at[h.local+1]-at[h.local])
	if err := h.node.ReduceScatter(w, fingerprint, part, whole, at, &r); err != nil {
		return k.sharedError(err)
	}
	b.out = part
	err := k.chosen(&h.between, b)
	if b.out = whole; err != nil {
		return err
	}
	copy(whole[at[h.local]:], part)
	return k.sharedError(h.node.AllGather(w, fingerprint, whole, at, whole[at[h.local]:at[h.local+1]]))
}

// crossPort is the port of a part of the group.
type crossPort struct {
	*port
	ranks []int // of the part, in the group
	rank  int   // this one's place among them
}

func (p *crossPort) Rank() int { return p.rank }

func (p *crossPort) Size() int { return len(p.ranks) }

func (p *crossPort) Send(to int, buf []byte) algorithm.Handle {
	return p.port.Send(p.ranks[to], buf)
}

func (p *crossPort) Recv(from int, buf []byte) algorithm.Handle {
	return p.port.Recv(p.ranks[from], buf)
}

func (p *crossPort) Notify(to int) { p.port.Notify(p.ranks[to]) }

func (p *crossPort) Expect(from int) { p.port.Expect(p.ranks[from]) }
