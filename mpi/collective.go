package mpi

import (
	"fmt"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/element"
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
	early    bool // a rank returns when its part is done, though others have not come yet
	costByIn bool // the length that costs are reckoned with is that of in, not of out
	internal bool // what a Comm does of its own by the algorithms of another kind: nobody chooses among them

	// algorithms are those for blocks whose bounds all ranks know, or for none; and those for ragged blocks.
	algorithms [2][]algorithm.Entry[runFunc]

	// shared goes straight through the memory that all ranks share, and sharedRagged does so for ragged blocks. nil: the collective cannot.
	shared, sharedRagged sharedFunc
}

// sharedFunc is a collective through shared memory.
type sharedFunc func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error

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

// algorithmName is the name of an algorithm's code, as it may come off the wire.
func algorithmName(kind collective, code uint8) string {
	between := ""
	switch {
	case code == sharedCode:
		return sharedName
	case code >= hierarchicalCode:
		code -= hierarchicalCode
		between = hierarchicalName + " and "
	}
	for _, a := range kind.traits() {
		if a.Code == code {
			return between + a.Name
		}
	}
	return fmt.Sprintf("%salgorithm %d", between, code)
}

// traits is what there is to know of the algorithms that may be chosen for a collective; none: there is no choice.
func (c collective) traits() []algorithm.Traits {
	if d := c.descriptor(); !d.internal {
		return algorithm.TraitsOf(d.algorithms[0])
	}
	return nil
}
