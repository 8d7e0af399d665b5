package mpi

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"ddpbatch/mpi/internal/element"
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
}

// bytes is the length that the costs of algorithms are reckoned with.
func (o *operation) bytes() int {
	if o.kind.descriptor().costByIn {
		return len(o.in)
	}
	return len(o.out)
}

// run executes the algorithm that was chosen.
func (o *operation) run(k *core) error {
	b := &k.buffers
	err := o.prepare(k, b)
	if err == nil {
		err = o.runChosen(k, b)
	}
	if err == nil && o.op.average && (b.root == k.port.Rank() || o.kind.descriptor().root != toRoot) {
		err = element.Divide(o.data, b.out, k.port.Size())
	}
	b.out, b.in = nil, nil // they are the caller's
	return err
}

func (o *operation) runChosen(k *core, b *buffers) error {
	switch {
	case o.kind == monitoredCall:
		return k.runMonitored(o.timeout)
	case o.code == sharedCode:
		return k.sharedError(o.shared()(k.node, nodeWaiter{k}, fingerprintOf(&k.call), b))
	case o.code >= hierarchicalCode:
		return k.runHierarchical(b)
	}
	return k.chosen(&k.port, b)
}

// shared is the operation's function for shared memory.
func (o *operation) shared() sharedFunc {
	if o.ragged {
		return o.kind.descriptor().sharedRagged
	}
	return o.kind.descriptor().shared
}

// prepare fills in b: it finds the bounds of blocks, and scales what PreMulSum is given.
func (o *operation) prepare(k *core, b *buffers) error {
	width := o.data.Size()
	// One by one, which the compiler does in place: an all-reduce of a few bytes in shared memory takes 2 % longer otherwise.
	b.out, b.in, b.outAt, b.inAt, b.root = o.out, o.in, nil, nil, o.root
	b.reduction.Kernel, b.reduction.Size, b.twin = o.op.kernel, width, o.op.twin
	if o.outBlocks.cut {
		b.outAt = k.outBounds.of(o.outBlocks, k.port.Size(), width)
	}
	if o.inBlocks.cut {
		b.inAt = k.inBounds.of(o.inBlocks, k.port.Size(), width)
	}
	if o.op.code == 0 || o.op.factor == 1 {
		return nil
	}
	scaled := &b.out
	if o.inBlocks.cut {
		scaled = &b.in
	}
	if o.inBlocks.cut || o.kind.descriptor().root == toRoot && o.root != k.port.Rank() { // it is not ours to change
		own := *scaled
		*scaled = k.port.Scratch(len(own))
		copy(*scaled, own)
	}
	return element.Scale(o.data, *scaled, o.op.factor)
}

// setRoot sets the root, if there is such a rank.
func (o *operation) setRoot(c *Comm, root int) {
	o.root = root
	if (root < 0 || root >= c.Size()) && o.wrong == nil {
		o.wrong = fmt.Errorf("there is no rank %d to be the root: ranks go from 0 to %d", root, c.Size()-1)
	}
}

// blocks are the parts of a buffer that belong to the ranks, one after another.
type blocks struct {
	cut    bool  // there are any: of
	even   int   // elements each,
	counts []int // or of each rank's
}

// evenBlocks cuts a buffer of length elements into a block for each rank.
func (o *operation) evenBlocks(c *Comm, buffer string, length, block int) blocks {
	if size := c.Size(); length != size*block && o.wrong == nil {
		o.wrong = fmt.Errorf("%s has %d elements, not %d blocks of %d", buffer, length, size, block)
	}
	return blocks{cut: true, even: block}
}

// unevenBlocks cuts it by counts.
func (o *operation) unevenBlocks(c *Comm, buffer string, length int, counts []int) blocks {
	if o.wrong == nil {
		o.wrong = checkCounts(c.Size(), buffer, length, counts)
	}
	return blocks{cut: true, counts: counts}
}

func checkCounts(size int, buffer string, length int, counts []int) error {
	if len(counts) != size {
		return fmt.Errorf("there are %d counts of %s for %d ranks", len(counts), buffer, size)
	}
	left := length
	for rank, n := range counts {
		if n < 0 {
			return fmt.Errorf("the count of %s for rank %d is %d", buffer, rank, n)
		}
		if n > left {
			return fmt.Errorf("%s has %d elements, fewer than its counts", buffer, length)
		}
		left -= n
	}
	if left > 0 {
		return fmt.Errorf("%s has %d elements, %d more than its counts", buffer, length, left)
	}
	return nil
}

// checkApart refuses buffers that share memory.
func (o *operation) checkApart() {
	if o.wrong == nil && overlap(o.out, o.in) {
		o.wrong = errors.New("in and out overlap")
	}
}

// overlap tells whether buffers share memory.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	from, other := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return from < other+uintptr(len(b)) && other < from+uintptr(len(a))
}

// ownBlock checks the other buffer's length against the rank's own count.
func (o *operation) ownBlock(c *Comm, buffer string, length int, counts []int) {
	if o.wrong == nil && counts[c.Rank()] != length {
		o.wrong = fmt.Errorf("%s has %d elements, and the count of rank %d is %d", buffer, length, c.Rank(), counts[c.Rank()])
	}
}

// bounds is room for where blocks begin and end, one place more than there are ranks, used again by each call.
type bounds []int

// of gives the bounds of blocks in bytes.
func (at *bounds) of(b blocks, size, width int) []int {
	if len(*at) != size+1 {
		*at = make([]int, size+1)
	}
	for rank := range size {
		n := b.even
		if b.counts != nil {
			n = b.counts[rank]
		}
		(*at)[rank+1] = (*at)[rank] + n*width
	}
	return *at
}

// ofElements gives the bounds, in bytes, of n parts of a buffer of length bytes, that differ by an element of width bytes at most.
func (at *bounds) ofElements(length, width, n int) []int {
	if len(*at) != n+1 {
		*at = make([]int, n+1)
	}
	elements := length / width
	for i := range n {
		part := elements / n
		if i < elements%n {
			part++
		}
		(*at)[i+1] = (*at)[i] + part*width
	}
	return *at
}

// own is where the rank's own block begins, in elements.
func (b blocks) own(rank int) int {
	if b.counts == nil {
		return rank * b.even
	}
	at := 0
	for _, n := range b.counts[:rank] {
		at += n
	}
	return at
}
