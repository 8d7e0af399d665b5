package mpi

import (
	"context"
	"errors"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/shm"
)

// AllReduce combines the buffers of all ranks element by element with op, and leaves the result in buf on every rank. buf has the same
// length on all of them, and may be empty.
//
// Every rank gets the same bits. Under Config.Deterministic they depend on the ranks' inputs alone: elements are combined along one fixed
// tree, whatever the length of buf, the algorithm and the transport. The tree combines neighboring ranks in pairs, then neighboring
// pairs, and so on. If one is left over, it moves up unchanged.
//
// If AllReduce fails, the content of buf is undefined.
func AllReduce[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	return c.run(ctx, allReduceOf(new(operation), buf, op))
}

// IAllReduce is the non-blocking form of AllReduce. buf belongs to the Request until it is done.
func IAllReduce[T Number](ctx context.Context, c *Comm, buf []T, op Op) *Request {
	return c.request(ctx, allReduceOf(new(operation), buf, op))
}

var allReduceDescriptor = descriptor{
	name: "all_reduce", reduces: true,
	algorithms: [2][]algorithm.Entry[runFunc]{
		entries(algorithm.AllReduces(), func(run algorithm.AllReduceFunc, p algorithm.Port, b *buffers) error {
			return run(p, b.out, b.reduction)
		}),
	},
	shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		r := b.sharedReduction()
		return node.AllReduce(w, fingerprint, b.out, &r)
	},
}

func allReduceOf[T Number](o *operation, buf []T, op Op) *operation {
	reductionOf(o, allReduceCall, buf, op)
	o.out = bytesOf(buf)
	return o
}

// Reduce is AllReduce with the result on root only. The buffers of the other ranks do not change. They may return before root has made the
// call, as root may from Broadcast.
func Reduce[T Number](ctx context.Context, c *Comm, buf []T, root int, op Op) error {
	return c.run(ctx, reduceOf(new(operation), c, buf, root, op))
}

// IReduce is the non-blocking form of Reduce. buf belongs to the Request until it is done.
func IReduce[T Number](ctx context.Context, c *Comm, buf []T, root int, op Op) *Request {
	return c.request(ctx, reduceOf(new(operation), c, buf, root, op))
}

var reduceDescriptor = descriptor{
	name: "reduce", reduces: true, root: toRoot, early: true,
	algorithms: [2][]algorithm.Entry[runFunc]{
		entries(algorithm.Reduces(), func(run algorithm.ReduceFunc, p algorithm.Port, b *buffers) error {
			return run(p, b.out, b.root, b.reduction)
		}),
	},
	shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		r := b.sharedReduction()
		return node.Reduce(w, fingerprint, b.out, b.root, &r)
	},
}

func reduceOf[T Number](o *operation, c *Comm, buf []T, root int, op Op) *operation {
	reductionOf(o, reduceCall, buf, op)
	o.out = bytesOf(buf)
	o.setRoot(c, root)
	return o
}

// ReduceScatter combines the in of all ranks element by element, and leaves block i of the result in the out of rank i. All blocks have the
// length of out, and in has one block for each rank. in does not change. It must not overlap out.
func ReduceScatter[T Number](ctx context.Context, c *Comm, out, in []T, op Op) error {
	return c.run(ctx, reduceScatterOf(new(operation), c, out, in, nil, op))
}

// ReduceScatterV is ReduceScatter with blocks of different lengths: counts[i] elements for rank i. counts must be the same on all ranks.
func ReduceScatterV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int, op Op) error {
	return c.run(ctx, reduceScatterOf(new(operation), c, out, in, counts, op))
}

// IReduceScatter is the non-blocking form of ReduceScatter. Both buffers belong to the Request until it is done.
func IReduceScatter[T Number](ctx context.Context, c *Comm, out, in []T, op Op) *Request {
	return c.request(ctx, reduceScatterOf(new(operation), c, out, in, nil, op))
}

// IReduceScatterV is the non-blocking form of ReduceScatterV. Buffers and counts belong to the Request until it is done.
func IReduceScatterV[T Number](ctx context.Context, c *Comm, out, in []T, counts []int, op Op) *Request {
	return c.request(ctx, reduceScatterOf(new(operation), c, out, in, counts, op))
}

var reduceScatterDescriptor = descriptor{
	name: "reduce_scatter", reduces: true, root: countsRoot, costByIn: true,
	algorithms: [2][]algorithm.Entry[runFunc]{
		entries(algorithm.ReduceScatters(), func(run algorithm.ReduceScatterFunc, p algorithm.Port, b *buffers) error {
			return run(p, b.out, b.in, b.inAt, b.reduction)
		}),
	},
	shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
		r := b.sharedReduction()
		return node.ReduceScatter(w, fingerprint, b.out, b.in, b.inAt, &r)
	},
}

func reduceScatterOf[T Number](o *operation, c *Comm, out, in []T, counts []int, op Op) *operation {
	reductionOf(o, reduceScatterCall, in, op)
	o.out, o.in = bytesOf(out), bytesOf(in)
	defer o.checkApart()
	if counts == nil {
		o.inBlocks = o.evenBlocks(c, "in", len(in), len(out))
	} else {
		o.inBlocks = o.unevenBlocks(c, "in", len(in), counts)
		o.ownBlock(c, "out", len(out), counts)
		o.root = digestOfCounts(counts)
	}
	return o
}

// Scan combines, element by element, the buffers of ranks 0 to r, and leaves the result in buf of rank r. The bits depend on those buffers
// alone. A rank may return before the ranks after it have made the call, as root may from Broadcast.
func Scan[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	return c.run(ctx, scanOf(new(operation), scanCall, buf, op))
}

// Exscan is Scan without the rank's own buffer: it combines those of ranks 0 to r-1. On rank 0, buf does not change.
func Exscan[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	return c.run(ctx, scanOf(new(operation), exscanCall, buf, op))
}

// IScan is the non-blocking form of Scan. buf belongs to the Request until it is done.
func IScan[T Number](ctx context.Context, c *Comm, buf []T, op Op) *Request {
	return c.request(ctx, scanOf(new(operation), scanCall, buf, op))
}

// IExscan is the non-blocking form of Exscan. buf belongs to the Request until it is done.
func IExscan[T Number](ctx context.Context, c *Comm, buf []T, op Op) *Request {
	return c.request(ctx, scanOf(new(operation), exscanCall, buf, op))
}

var (
	scanDescriptor = descriptor{
		name: "scan", reduces: true, early: true, algorithms: scans(algorithm.Scans()),
		shared: func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error {
			r := b.sharedReduction()
			return node.Scan(w, fingerprint, b.out, &r)
		},
	}
	exscanDescriptor = descriptor{name: "exscan", reduces: true, early: true, algorithms: scans(algorithm.Exscans())}
)

func scans(table []algorithm.Entry[algorithm.ScanFunc]) [2][]algorithm.Entry[runFunc] {
	return [2][]algorithm.Entry[runFunc]{entries(table, func(run algorithm.ScanFunc, p algorithm.Port, b *buffers) error {
		return run(p, b.out, b.reduction)
	})}
}

func scanOf[T Number](o *operation, kind collective, buf []T, op Op) *operation {
	reductionOf(o, kind, buf, op)
	o.out = bytesOf(buf)
	if o.op.average && o.wrong == nil {
		o.wrong = errNoAverage
	}
	return o
}

var errNoAverage = errors.New("a scan cannot use Avg, which is the average of all ranks")

// reductionOf fills in a reduction of as many elements as s has.
func reductionOf[T Number](o *operation, kind collective, s []T, op Op) {
	o.kind, o.data, o.count = kind, element.TypeOf[T](), uint64(len(s))
	switch standard, ok := op.(Standard); {
	case ok: // the common case, without a call that would move o to the heap
		o.wrong = standard.fill(&o.op, o.data)
	case op == nil:
		o.wrong = errors.New("the operation is nil")
	default:
		o.op, o.wrong = op.resolve(o.data)
	}
}
