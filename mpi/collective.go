package mpi

import (
	"fmt"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/shm"
)

// collective is the code of a kind of call. The codes are part of the wire's format.
type collective uint8

const (
	setupCall collective = iota // what a Comm does of its own while it comes to be
	allReduceCall
	broadcastCall
	barrierCall
	reduceCall
	allGatherCall
	gatherCall
	scatterCall
	reduceScatterCall
	allToAllCall
	scanCall
	exscanCall
	groupCall
	allocCall
	messageCall // point to point
	monitoredCall
)

// collectives is what there is to know of each kind of call.
var collectives = [...]descriptor{
	setupCall:         {name: "init", algorithms: allGatherDescriptor.algorithms, internal: true},
	allReduceCall:     allReduceDescriptor,
	broadcastCall:     broadcastDescriptor,
	barrierCall:       barrierDescriptor,
	reduceCall:        reduceDescriptor,
	allGatherCall:     allGatherDescriptor,
	gatherCall:        gatherDescriptor,
	scatterCall:       scatterDescriptor,
	reduceScatterCall: reduceScatterDescriptor,
	allToAllCall:      allToAllDescriptor,
	scanCall:          scanDescriptor,
	exscanCall:        exscanDescriptor,
	groupCall:         {name: "new_group", algorithms: barrierDescriptor.algorithms, internal: true},
	allocCall:         {name: "alloc", algorithms: barrierDescriptor.algorithms, internal: true},
	messageCall:       {name: "message"},
	monitoredCall:     {name: "monitored_barrier"},
}

// descriptor is all that there is to know of a kind of call. That of a collective is beside its function.
type descriptor struct {
	name     string // as errors and Explain show it
	reduces  bool   // it combines elements by an Op
	root     rootUse
	costByIn bool // the length that costs are reckoned with is that of in, not of out
	internal bool // what a Comm does of its own by the algorithms of another kind: nobody chooses among them

	// algorithms are those for blocks whose bounds all ranks know, or for none; and those for ragged blocks.
	algorithms [2][]algorithm.Entry[runFunc]

	// shared goes straight through the memory that all ranks share; nil: the collective cannot. No blocks are ragged.
	shared func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error
}

// rootUse is what the root in a fingerprint stands for.
type rootUse uint8

const (
	noRoot     rootUse = iota
	fromRoot           // the rank that all others get something from
	toRoot             // the rank that alone gets the result
	countsRoot         // a digest of counts, in which all ranks must agree
)

// buffers are what a call gives its algorithm. Bounds of blocks are in bytes, and nil where the call has none.
type buffers struct {
	out, in     []byte
	outAt, inAt []int
	root        int
	reduction   algorithm.Reduction
	twin        element.Kernel2 // of the reduction, or nil
}

// sharedReduction is the reduction as shared memory wants it.
func (b *buffers) sharedReduction() shm.Reduction {
	return shm.Reduction{Kernel: b.reduction.Kernel, Kernel2: b.twin, Size: b.reduction.Size}
}

// runFunc is the function of an algorithm, of whatever collective.
type runFunc func(p algorithm.Port, b *buffers) error

// entries makes the functions of a table alike.
func entries[F any](table []algorithm.Entry[F], call func(run F, p algorithm.Port, b *buffers) error) []algorithm.Entry[runFunc] {
	all := make([]algorithm.Entry[runFunc], len(table))
	for i, e := range table {
		all[i] = algorithm.Entry[runFunc]{
			Traits: e.Traits,
			Run:    func(p algorithm.Port, b *buffers) error { return call(e.Run, p, b) },
		}
	}
	return all
}

// descriptor finds what there is to know of c: nothing, of a code that came off the wire and stands for no kind.
func (c collective) descriptor() *descriptor {
	if int(c) < len(collectives) {
		return &collectives[c]
	}
	return new(descriptor)
}

func (c collective) String() string {
	if int(c) >= len(collectives) {
		return fmt.Sprintf("collective %d", uint8(c))
	}
	return collectives[c].name
}

// describe words a fingerprint as errors show it, such as "all_reduce #7 float32 x 10 sum": all of it but the algorithm. Fingerprints
// come off the wire, too: no code is taken for granted.
func describe(call engine.Call) string {
	kind, data := collective(call.Collective), element.Type(call.Element)
	if kind == messageCall {
		return fmt.Sprintf("message with tag %d, %v x %d", call.Seq, data, call.Count)
	}
	if kind == setupCall && call.Seq == 0 {
		return "before the first call"
	}
	text := fmt.Sprintf("%v #%d", kind, call.Seq)
	if call.Element != 0 {
		text += fmt.Sprintf(" %v", data)
	}
	switch {
	case kind == groupCall:
		text += fmt.Sprintf(" of ranks with digest %x", call.Count)
	case call.Element != 0 && call.Count != noCount:
		text += fmt.Sprintf(" x %d", call.Count&(1<<countBits-1))
	}
	if call.Op != 0 {
		text += " " + opName(call.Op)
	}
	switch root := kind.descriptor().root; {
	case root == fromRoot:
		text += fmt.Sprintf(" from rank %d", call.Root)
	case root == toRoot:
		text += fmt.Sprintf(" to rank %d", call.Root)
	case root == countsRoot && call.Root != 0:
		text += fmt.Sprintf(" with counts of digest %x", uint32(call.Root))
	}
	return text
}

// describeFully also words the algorithm, so that no two fingerprints that differ read the same.
func describeFully(call engine.Call) string {
	text := describe(call) + " by " + algorithmName(collective(call.Collective), call.Algorithm)
	if digest := call.Count >> countBits; digest != 0 && call.Element != 0 && call.Count != noCount {
		text += fmt.Sprintf(" with digest %x", digest)
	}
	return text
}

const (
	// noCount is the count of a call whose ranks have buffers of different lengths.
	noCount = 1<<64 - 1

	// countBits is how many bits of a fingerprint's count are one. Above them is a digest of whatever has no place of its own.
	countBits = 40
)

// countOf is a fingerprint's count.
func countOf(count uint64, digest uint32) uint64 {
	if count == noCount || digest == 0 {
		return count
	}
	return count | uint64(digest^digest>>24)<<countBits
}

// fingerprintOf is a fingerprint for shared memory.
func fingerprintOf(call *engine.Call) shm.Fingerprint {
	codes := uint32(call.Collective) | uint32(call.Element)<<8 | uint32(call.Op)<<16 | uint32(call.Algorithm)<<24
	return shm.Fingerprint{call.Group, call.Seq, call.Count, uint64(uint32(call.Root)) | uint64(codes)<<32}
}

// callOf is the reverse.
func callOf(s shm.Fingerprint) engine.Call {
	codes := uint32(s[3] >> 32)
	return engine.Call{
		Group: s[0], Seq: s[1], Count: s[2], Root: int32(uint32(s[3])),
		Collective: uint8(codes), Element: uint8(codes >> 8), Op: uint8(codes >> 16), Algorithm: uint8(codes >> 24),
	}
}
