package mpi

import (
	"fmt"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/shm"
)

// collective is the code of a kind of call. The codes are part of the wire format.
type collective uint8

const (
	setupCall collective = iota // the calls that a Comm makes itself while it is being made
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

// collectives describes each kind of call.
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

// descriptor describes a kind of call. The descriptor of a collective is beside its function.
type descriptor struct {
	name     string // as errors and Explain show it
	reduces  bool   // it combines elements by an Op
	root     rootUse
	early    bool // a rank returns when its part is done, even if others have not come yet
	costByIn bool // costs are computed from the length of in, not from that of out
	internal bool // a Comm makes the call itself, by the algorithms of another kind; nobody chooses among them

	// algorithms has two tables. The first is for blocks whose bounds all ranks know, or for no blocks. The second is for ragged blocks.
	algorithms [2][]algorithm.Entry[runFunc]

	// shared works directly in the memory that all ranks share; sharedRagged does so for ragged blocks. nil: the collective cannot do so.
	shared, sharedRagged sharedFunc
}

// sharedFunc is a collective through shared memory.
type sharedFunc func(node *shm.Node, w nodeWaiter, fingerprint shm.Fingerprint, b *buffers) error

// rootUse says what the root in a fingerprint stands for.
type rootUse uint8

const (
	noRoot     rootUse = iota
	fromRoot           // the rank whose data all others get
	toRoot             // the only rank that gets the result
	countsRoot         // a digest of counts, which must be the same on all ranks
)

// buffers are what a call gives its algorithm. Bounds of blocks are in bytes, and nil if the call has no blocks.
type buffers struct {
	out, in     []byte
	outAt, inAt []int
	root        int
	reduction   algorithm.Reduction
	twin        element.Kernel2 // of the reduction, or nil
}

// sharedReduction returns the reduction in the form that package shm uses.
func (b *buffers) sharedReduction() shm.Reduction {
	return shm.Reduction{Kernel: b.reduction.Kernel, Kernel2: b.twin, Size: b.reduction.Size}
}

// runFunc is the function of an algorithm, for any collective.
type runFunc func(p algorithm.Port, b *buffers) error

// entries gives the functions of a table the type runFunc.
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

// descriptor returns the descriptor of c. For a code from the wire that does not stand for any kind, it returns an empty one.
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

// algorithmName returns the name of an algorithm's code. The code may come off the wire, and need not be valid.
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

// traits returns the traits of the algorithms that a user may choose for a collective, or nil if there is no choice.
func (c collective) traits() []algorithm.Traits {
	if d := c.descriptor(); !d.internal {
		return algorithm.TraitsOf(d.algorithms[0])
	}
	return nil
}
