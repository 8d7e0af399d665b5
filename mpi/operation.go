package mpi

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"ddpbatch/mpi/internal/element"
)

// operation is one rank's call of a collective. Collectives that work in place have their buffer in out.
type operation struct {
	kind      collective
	data      element.Type
	count     uint64 // elements, if all ranks have the same number, below 1<<countBits; otherwise noCount
	digest    uint32 // of everything else that must be the same on all ranks and has no field of its own
	op        resolved
	root      int
	out, in   []byte
	outBlocks blocks
	inBlocks  blocks
	ragged    bool          // the blocks' bounds differ between ranks, or some ranks do not know them
	wrong     error         // what is wrong with the caller's arguments
	using     string        // the algorithm that Using named, or empty
	timeout   time.Duration // of a monitored barrier

	// Set by core.choose.
	code uint8
	name string
}

// bytes returns the length from which the costs of algorithms are computed.
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
	b.out, b.in = nil, nil // they belong to the caller
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

// shared returns the operation's function for shared memory.
func (o *operation) shared() sharedFunc {
	if o.ragged {
		return o.kind.descriptor().sharedRagged
	}
	return o.kind.descriptor().shared
}

// prepare fills in b: it computes the bounds of blocks, and scales the elements for PreMulSum.
func (o *operation) prepare(k *core, b *buffers) error {
	width := o.data.Size()
	// Field by field: the compiler then writes in place. Otherwise an all-reduce of a few bytes in shared memory takes 2 % longer.
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
	if o.inBlocks.cut || o.kind.descriptor().root == toRoot && o.root != k.port.Rank() { // the buffer must not change
		own := *scaled
		*scaled = k.port.Scratch(len(own))
		copy(*scaled, own)
	}
	return element.Scale(o.data, *scaled, o.op.factor)
}

// setRoot sets the root, and checks that it is a rank of c.
func (o *operation) setRoot(c *Comm, root int) {
	o.root = root
	if (root < 0 || root >= c.Size()) && o.wrong == nil {
		o.wrong = fmt.Errorf("the root, rank %d, does not exist: ranks are 0 to %d", root, c.Size()-1)
	}
}

// blocks describes the parts of a buffer that belong to the ranks, one after another.
type blocks struct {
	cut    bool  // the buffer has blocks,
	even   int   // of this number of elements each,
	counts []int // or of these numbers, by rank
}

// evenBlocks returns the blocks of a buffer of length elements that has a block of block elements for each rank.
func (o *operation) evenBlocks(c *Comm, buffer string, length, block int) blocks {
	if size := c.Size(); length != size*block && o.wrong == nil {
		o.wrong = fmt.Errorf("%s must have %d blocks of %d elements, but has %d elements", buffer, size, block, length)
	}
	return blocks{cut: true, even: block}
}

// unevenBlocks returns the blocks of a buffer that has counts[i] elements for each rank i.
func (o *operation) unevenBlocks(c *Comm, buffer string, length int, counts []int) blocks {
	if o.wrong == nil {
		o.wrong = checkCounts(c.Size(), buffer, length, counts)
	}
	return blocks{cut: true, counts: counts}
}

func checkCounts(size int, buffer string, length int, counts []int) error {
	if len(counts) != size {
		return fmt.Errorf("there must be %d counts of %s, one for each rank, got %d", size, buffer, len(counts))
	}
	left := length
	for rank, n := range counts {
		if n < 0 {
			return fmt.Errorf("the count of %s for rank %d must not be negative, got %d", buffer, rank, n)
		}
		if n > left {
			return fmt.Errorf("%s has %d elements, fewer than the sum of its counts", buffer, length)
		}
		left -= n
	}
	if left > 0 {
		return fmt.Errorf("%s has %d elements, %d more than the sum of its counts", buffer, length, left)
	}
	return nil
}

// checkApart checks that the buffers do not overlap.
func (o *operation) checkApart() {
	if o.wrong == nil && overlap(o.out, o.in) {
		o.wrong = errors.New("in and out overlap")
	}
}

// overlap reports whether buffers share memory.
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
		o.wrong = fmt.Errorf("%s has %d elements, but the count of rank %d is %d", buffer, length, c.Rank(), counts[c.Rank()])
	}
}

// bounds holds the bounds of blocks, one more than there are ranks. Each call uses it again.
type bounds []int

// of returns the bounds of blocks in bytes.
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

// ofElements returns the bounds, in bytes, of n parts of a buffer of length bytes. The lengths of the parts differ by at most one element
// of width bytes.
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

// own returns the index of the first element of the rank's own block.
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
