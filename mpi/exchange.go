package mpi

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/shm"
)

// Broadcast copies root's buf into the buf of every other rank. buf has the same length on all of them, and may be empty.
//
// Root may return before the others have made the call. Whether they have made it, and with the same root, it finds out in its next call,
// or in Close. So if two ranks both call Broadcast as the root, they get an error there.
//
// If it fails, the content of buf is undefined on all ranks but root.
func Broadcast[T Number](ctx context.Context, c *Comm, buf []T, root int) error {
	return c.run(ctx, broadcastOf(new(operation), c, buf, root))
}

// IBroadcast is the non-blocking form of Broadcast. buf belongs to the Request until it is done.
func IBroadcast[T Number](ctx context.Context, c *Comm, buf []T, root int) *Request {
	return c.request(ctx, broadcastOf(new(operation), c, buf, root))
}

var broadcastDescriptor = descriptor{
	name: "broadcast", root: fromRoot, early: true,
	algorithms: [2][]algorithm.Entry[runFunc]{
		entries(algorithm.Broadcasts(), func(run algorithm.BroadcastFunc, p algorithm.Port, b *buffers) error {
			return run(p, b.out, b.root)
		}),
	},
	shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		return node.Broadcast(w, fingerprint, b.out, b.root)
	},
}

func broadcastOf[T Number](o *operation, c *Comm, buf []T, root int) *operation {
	o.kind, o.data, o.count = broadcastCall, element.TypeOf[T](), uint64(len(buf))
	o.out = bytesOf(buf)
	o.setRoot(c, root)
	return o
}

// AllGather gathers the in of all ranks, in the order of ranks, in the out of every rank. in has the same length on all of them. It may be
// the rank's own block of out; otherwise it must not overlap out. If only one of the buffers is from Alloc, it should be in.
func AllGather[T Number](ctx context.Context, c *Comm, out, in []T) error {
	return c.run(ctx, allGatherOf(new(operation), c, out, in, nil))
}

// AllGatherV is AllGather for different lengths of in: counts[i] elements from rank i. counts must be the same on all ranks.
func AllGatherV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int) error {
	return c.run(ctx, allGatherOf(new(operation), c, out, in, counts))
}

// IAllGather is the non-blocking form of AllGather. Both buffers belong to the Request until it is done.
func IAllGather[T Number](ctx context.Context, c *Comm, out, in []T) *Request {
	return c.request(ctx, allGatherOf(new(operation), c, out, in, nil))
}

// IAllGatherV is the non-blocking form of AllGatherV. Buffers and counts belong to the Request until it is done.
func IAllGatherV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int) *Request {
	return c.request(ctx, allGatherOf(new(operation), c, out, in, counts))
}

var allGatherDescriptor = descriptor{
	name: "all_gather", root: countsRoot,
	algorithms: [2][]algorithm.Entry[runFunc]{
		entries(algorithm.AllGathers(), func(run algorithm.AllGatherFunc, p algorithm.Port, b *buffers) error {
			if own := b.out[b.outAt[p.Rank()]:]; len(b.in) > 0 && &own[0] != &b.in[0] {
				copy(own, b.in)
			}
			return run(p, b.out, b.outAt)
		}),
	},
	shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		return node.AllGather(w, fingerprint, b.out, b.outAt, b.in)
	},
}

func allGatherOf[T Number](o *operation, c *Comm, out, in []T, counts []int) *operation {
	o.kind, o.data, o.count = allGatherCall, element.TypeOf[T](), uint64(len(out))
	o.out, o.in = bytesOf(out), bytesOf(in)
	if counts == nil {
		o.outBlocks = o.evenBlocks(c, "out", len(out), len(in))
	} else {
		o.outBlocks = o.unevenBlocks(c, "out", len(out), counts)
		o.ownBlock(c, "in", len(in), counts)
		o.root = digestOfCounts(counts)
	}
	if o.wrong == nil && overlapsOthers(out, in, o.outBlocks.own(c.Rank())) {
		o.wrong = errors.New("in overlaps out, but is not this rank's own block of it")
	}
	return o
}

// overlapsOthers reports whether in shares memory with out, and is not the block of out that begins at the element own.
func overlapsOthers[T Number](out, in []T, own int) bool {
	return overlap(bytesOf(out), bytesOf(in)) && &out[own] != &in[0]
}

// Gather gathers the in of all ranks, in the order of ranks, in root's out. in has the same length on all ranks. The out of other ranks is
// not used. On root, in may be its own block of out. The other ranks may return before root has made the call, as root may from Broadcast.
func Gather[T Number](ctx context.Context, c *Comm, out, in []T, root int) error {
	return c.run(ctx, gatherOf(new(operation), c, out, in, nil, root, false))
}

// GatherV is Gather for different lengths of in: counts[i] elements from rank i. Only root's counts are used.
func GatherV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int, root int) error {
	return c.run(ctx, gatherOf(new(operation), c, out, in, counts, root, true))
}

// IGather is the non-blocking form of Gather. Both buffers belong to the Request until it is done.
func IGather[T Number](ctx context.Context, c *Comm, out, in []T, root int) *Request {
	return c.request(ctx, gatherOf(new(operation), c, out, in, nil, root, false))
}

// IGatherV is the non-blocking form of GatherV. Buffers and counts belong to the Request until it is done.
func IGatherV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int, root int) *Request {
	return c.request(ctx, gatherOf(new(operation), c, out, in, counts, root, true))
}

var gatherDescriptor = descriptor{
	name: "gather", root: toRoot, early: true,
	algorithms: [2][]algorithm.Entry[runFunc]{entries(algorithm.Gathers(), gatherBlocks), entries(algorithm.GathersV(), gatherBlocks)},
	shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		return node.Gather(w, &w.core.port, fingerprint, b.out, b.outAt, b.in, b.root)
	},
	sharedRagged: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		return node.GatherV(w, &w.core.port, fingerprint, b.out, b.outAt, b.in, b.root)
	},
}

func gatherBlocks(run algorithm.GatherFunc, p algorithm.Port, b *buffers) error {
	return run(p, b.out, b.outAt, b.in, b.root)
}

func gatherOf[T Number](o *operation, c *Comm, out, in []T, counts []int, root int, ragged bool) *operation {
	o.kind, o.data, o.count = gatherCall, element.TypeOf[T](), uint64(len(in))
	o.in, o.ragged = bytesOf(in), ragged
	if ragged {
		o.count = noCount
	}
	if o.setRoot(c, root); c.Rank() != root {
		return o
	}
	o.out = bytesOf(out)
	if ragged {
		o.outBlocks = o.unevenBlocks(c, "out", len(out), counts)
		o.ownBlock(c, "in", len(in), counts)
	} else {
		o.outBlocks = o.evenBlocks(c, "out", len(out), len(in))
	}
	return o
}

// Scatter sends each rank its block of root's in, which the rank receives in out. out has the same length on all ranks. The in of other
// ranks is not used. On root, out may be its own block of in. Root may return before the others have made the call, as from Broadcast.
func Scatter[T Number](ctx context.Context, c *Comm, out, in []T, root int) error {
	return c.run(ctx, scatterOf(new(operation), c, out, in, nil, root, false))
}

// ScatterV is Scatter with blocks of different lengths: counts[i] elements for rank i. Only root's counts are used.
func ScatterV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int, root int) error {
	return c.run(ctx, scatterOf(new(operation), c, out, in, counts, root, true))
}

// IScatter is the non-blocking form of Scatter. Both buffers belong to the Request until it is done.
func IScatter[T Number](ctx context.Context, c *Comm, out, in []T, root int) *Request {
	return c.request(ctx, scatterOf(new(operation), c, out, in, nil, root, false))
}

// IScatterV is the non-blocking form of ScatterV. Buffers and counts belong to the Request until it is done.
func IScatterV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int, root int) *Request {
	return c.request(ctx, scatterOf(new(operation), c, out, in, counts, root, true))
}

var scatterDescriptor = descriptor{
	name: "scatter", root: fromRoot, early: true, costByIn: true,
	algorithms: [2][]algorithm.Entry[runFunc]{entries(algorithm.Scatters(), scatterBlocks), entries(algorithm.ScattersV(), scatterBlocks)},
	shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		return node.Scatter(w, &w.core.port, fingerprint, b.out, b.in, b.inAt, b.root)
	},
	sharedRagged: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		return node.ScatterV(w, &w.core.port, fingerprint, b.out, b.in, b.inAt, b.root)
	},
}

func scatterBlocks(run algorithm.ScatterFunc, p algorithm.Port, b *buffers) error {
	return run(p, b.out, b.in, b.inAt, b.root)
}

func scatterOf[T Number](o *operation, c *Comm, out, in []T, counts []int, root int, ragged bool) *operation {
	o.kind, o.data, o.count = scatterCall, element.TypeOf[T](), uint64(len(out))
	o.out, o.ragged = bytesOf(out), ragged
	if ragged {
		o.count = noCount
	}
	if o.setRoot(c, root); c.Rank() != root {
		return o
	}
	o.in = bytesOf(in)
	if ragged {
		o.inBlocks = o.unevenBlocks(c, "in", len(in), counts)
		o.ownBlock(c, "out", len(out), counts)
	} else {
		o.inBlocks = o.evenBlocks(c, "in", len(in), len(out))
	}
	return o
}

// AllToAll sends block i of in to rank i, which receives it as the block of this rank in its out. All blocks have the same length, and in
// and out have one block for each rank. They must not overlap.
func AllToAll[T Number](ctx context.Context, c *Comm, out, in []T) error {
	return c.run(ctx, allToAllOf(new(operation), c, out, in, nil, nil))
}

// AllToAllV is AllToAll with blocks of different lengths: inCounts[i] elements go to rank i, and outCounts[i] come from it.
func AllToAllV[T Number](ctx context.Context, c *Comm, out []T, outCounts []int, in []T, inCounts []int) error {
	return c.run(ctx, allToAllOf(new(operation), c, out, in, outCounts, inCounts))
}

// IAllToAll is the non-blocking form of AllToAll. Both buffers belong to the Request until it is done.
func IAllToAll[T Number](ctx context.Context, c *Comm, out, in []T) *Request {
	return c.request(ctx, allToAllOf(new(operation), c, out, in, nil, nil))
}

// IAllToAllV is the non-blocking form of AllToAllV. Buffers and counts belong to the Request until it is done.
func IAllToAllV[T Number](ctx context.Context, c *Comm, out []T, outCounts []int, in []T, inCounts []int) *Request {
	return c.request(ctx, allToAllOf(new(operation), c, out, in, outCounts, inCounts))
}

var allToAllDescriptor = descriptor{
	name: "all_to_all", costByIn: true,
	algorithms: [2][]algorithm.Entry[runFunc]{entries(algorithm.AllToAlls(), allToAllBlocks),
		entries(algorithm.AllToAllsV(), allToAllBlocks)},
	shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		return node.AllToAll(w, fingerprint, b.out, b.in, b.inAt)
	},
	sharedRagged: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		return node.AllToAllV(w, &w.core.port, fingerprint, b.out, b.outAt, b.in, b.inAt)
	},
}

func allToAllBlocks(run algorithm.AllToAllFunc, p algorithm.Port, b *buffers) error {
	return run(p, b.out, b.outAt, b.in, b.inAt)
}

func allToAllOf[T Number](o *operation, c *Comm, out, in []T, outCounts, inCounts []int) *operation {
	o.kind, o.data, o.count = allToAllCall, element.TypeOf[T](), uint64(len(in))
	o.out, o.in = bytesOf(out), bytesOf(in)
	defer o.checkApart()
	if outCounts == nil && inCounts == nil {
		if len(in) != len(out) && o.wrong == nil {
			o.wrong = fmt.Errorf("in has %d elements and out %d: both must have the same number", len(in), len(out))
		}
		o.inBlocks = o.evenBlocks(c, "in", len(in), len(in)/c.Size())
		o.outBlocks = o.inBlocks
		return o
	}
	o.ragged, o.count = true, noCount
	o.inBlocks = o.unevenBlocks(c, "in", len(in), inCounts)
	o.outBlocks = o.unevenBlocks(c, "out", len(out), outCounts)
	if r := c.Rank(); o.wrong == nil && inCounts[r] != outCounts[r] {
		o.wrong = fmt.Errorf("this rank sends itself %d elements but receives %d", inCounts[r], outCounts[r])
	}
	return o
}
