package mpi

import (
	"time"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/shm"
)

// operation is a collective as one rank calls it. What works in place has its buffer in out.
type operation struct {
	kind      collective
	data      element.Type
	count     uint64 // elements, as far as all ranks have the same number; below 1<<countBits, or noCount
	digest    uint32 // of what else all ranks must have the same, and no other place is for
	op        resolved
	root      int
	out, in   []byte
	outBlocks blocks
	inBlocks  blocks
	ragged    bool          // the blocks' bounds are not the same on all ranks, or not known to all
	wrong     error         // what is wrong with the caller's arguments
	using     string        // the algorithm asked for, or empty
	timeout   time.Duration // of a monitored barrier

	// Chosen by core.choose.
	code uint8
	name string

	outAt, inAt []int // bounds of the blocks, in bytes; nil where there are none
}

// call is the operation's fingerprint.
func (o *operation) call(k *core) engine.Call {
	call := engine.Call{
		Seq: k.seq, Count: countOf(o.count, o.digest^o.op.digest), Root: int32(o.root),
		Collective: uint8(o.kind), Element: uint8(o.data), Op: o.op.code, Algorithm: o.code,
	}
	if k.group != nil {
		call.Group = k.group.ID()
	}
	return call
}

// bytes is the length that the costs of algorithms are reckoned with.
func (o *operation) bytes() int {
	switch o.kind {
	case reduceScatterCall, scatterCall, allToAllCall:
		return len(o.in)
	}
	return len(o.out)
}

// run executes the algorithm that was chosen.
func (o *operation) run(k *core) error {
	if err := o.prepare(k); err != nil {
		return err
	}
	var err error
	switch {
	case o.kind == monitoredCall:
		err = k.monitor(o.timeout)
	case o.code == sharedCode:
		err = o.runShared(k)
	case o.code >= hierarchicalCode:
		err = o.runHierarchical(k)
	default:
		err = o.runChosen(k)
	}
	if err == nil && o.op.average && o.hasResult(k) {
		err = element.Divide(o.data, o.out, k.port.Size())
	}
	return err
}

// prepare finds the bounds of blocks, and scales what PreMulSum is given.
func (o *operation) prepare(k *core) error {
	o.outAt, o.inAt = nil, nil
	switch width := o.data.Size(); o.kind {
	case allGatherCall, setupCall:
		o.outAt = k.outBounds.of(o.outBlocks, k.port.Size(), width)
	case reduceScatterCall:
		o.inAt = k.inBounds.of(o.inBlocks, k.port.Size(), width)
	case allToAllCall:
		if o.code == sharedCode {
			break // all blocks are of one length
		}
		o.outAt = k.outBounds.of(o.outBlocks, k.port.Size(), width)
		o.inAt = k.inBounds.of(o.inBlocks, k.port.Size(), width)
	case gatherCall:
		if k.port.Rank() == o.root {
			o.outAt = k.outBounds.of(o.outBlocks, k.port.Size(), width)
		}
	case scatterCall:
		if k.port.Rank() == o.root {
			o.inAt = k.inBounds.of(o.inBlocks, k.port.Size(), width)
		}
	}
	if o.op.code == 0 || o.op.factor == 1 {
		return nil
	}
	switch {
	case o.kind == reduceScatterCall: // in is not ours to change
		scaled := k.port.Scratch(len(o.in))
		copy(scaled, o.in)
		o.in = scaled
		return element.Scale(o.data, o.in, o.op.factor)
	case o.kind == reduceCall && k.port.Rank() != o.root:
		scaled := k.port.Scratch(len(o.out))
		copy(scaled, o.out)
		o.out = scaled
	}
	return element.Scale(o.data, o.out, o.op.factor)
}

// hasResult tells whether this rank gets a reduction's result.
func (o *operation) hasResult(k *core) bool { return o.kind != reduceCall || k.port.Rank() == o.root }

func (o *operation) reduction() algorithm.Reduction {
	return algorithm.Reduction{Kernel: o.op.kernel, Size: o.data.Size()}
}

func (o *operation) runChosen(k *core) error {
	f, p := &k.chosen, &k.port
	switch o.kind {
	case allReduceCall:
		return f.allReduce(p, o.out, o.reduction())
	case reduceCall:
		return f.reduce(p, o.out, o.root, o.reduction())
	case reduceScatterCall:
		return f.reduceScatter(p, o.out, o.in, o.inAt, o.reduction())
	case scanCall, exscanCall:
		return f.scan(p, o.out, o.reduction())
	case broadcastCall:
		return f.broadcast(p, o.out, o.root)
	case allGatherCall, setupCall:
		return f.allGather(p, o.out, o.outAt)
	case gatherCall:
		return f.gather(p, o.out, o.outAt, o.in, o.root)
	case scatterCall:
		return f.scatter(p, o.out, o.in, o.inAt, o.root)
	case allToAllCall:
		return f.allToAll(p, o.out, o.outAt, o.in, o.inAt)
	default:
		return f.barrier(p)
	}
}

// runShared is runChosen through the memory that all ranks share.
func (o *operation) runShared(k *core) error {
	w, stamp := nodeWaiter{k}, stampOf(&k.call)
	r := shm.Reduction{Kernel: o.op.kernel, Kernel2: o.op.twin, Size: o.data.Size()}
	var err error
	switch o.kind {
	case allReduceCall:
		err = k.node.AllReduce(w, stamp, o.out, &r)
	case reduceCall:
		err = k.node.Reduce(w, stamp, o.out, o.root, &r)
	case reduceScatterCall:
		err = k.node.ReduceScatter(w, stamp, o.out, o.in, o.inAt, &r)
	case broadcastCall:
		err = k.node.Broadcast(w, stamp, o.out, o.root)
	case allGatherCall:
		err = k.node.AllGather(w, stamp, o.out, o.outAt)
	case allToAllCall:
		err = k.node.AllToAll(w, stamp, o.out, o.in)
	default:
		err = k.node.Barrier(w, stamp)
	}
	return k.sharedError(err)
}
