package mpi

import (
	"context"
	"slices"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/shm"
)

const (
	hierarchicalName = "hierarchical" // all-reduce in three steps: within machines, between them, within them
	hierarchicalCode = 128            // plus the code of the algorithm between machines
)

// hierarchy describes a group whose ranks are on several machines, with the same number of ranks on each, more than one, and one machine's
// ranks after another's.
type hierarchy struct {
	node  *shm.Node // the ranks of this machine
	local int       // this rank's place among them
	width int       // the number of ranks of each machine
	cross []int     // the ranks with the same place, one on each machine, in order

	between crossPort // for messages to these
}

// shareMachines makes shared memory for the ranks of each machine of a group that is spread over several, if each machine has the same
// number of its ranks and the memory works on all ranks. k is the group that sets up target.
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

// newHierarchy returns this rank's place in the group's hierarchy; machines[i] is the machine of rank i. It returns nil if there is none.
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

// canonical reports whether reducing within machines first keeps the canonical order, which is so if each machine's ranks are a whole
// subtree.
func (h *hierarchy) canonical() bool { return h.width&(h.width-1) == 0 }

// cost predicts an all-reduce of n bytes: all of it passes through memory twice, and each rank's part over the network.
func (h *hierarchy) cost(between algorithm.Entry[runFunc], m algorithm.Machine, n int) float64 {
	const flags = 4 * 0.5e-6 // the exchanges within the machine, at the time of one hop through memory each
	return flags + 3*float64(n)*m.Gamma + between.Cost(m, len(h.cross), n/h.width)
}

// runHierarchical reduces within the machine, so that each of its ranks has one part of the sum. Then it all-reduces that part with the
// ranks of other machines that have the same part. At last it gathers the parts within the machine.
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

// crossPort is the port for a part of the group.
type crossPort struct {
	*port
	ranks []int // the ranks of the part, in the group
	rank  int   // this rank's place among them
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
