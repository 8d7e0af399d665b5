package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// MaxRanks is the largest group of one Node: in a chunk, each rank has a cache line.
const MaxRanks = chunkSize / line

const (
	inlineSize = 32 << 10  // a rank's inline data of one call
	chunkSize  = 128 << 10 // a rank's data of one step of a staged call; depth of them fit in the L2 cache
	depth      = 3         // the number of chunks in a rank's staging memory; see Node.passChunks
	wordSize   = 16        // the data that fits in the cache line of a slot

	// places is the number of calls in a row that have their own slot and inline data; see Node.
	places = 4

	inlineAt = 4 << 10
	stagesAt = inlineAt + places*inlineSize

	// AreaSize is the length in bytes of the segment that each rank of a Node makes.
	AreaSize = stagesAt + depth*chunkSize
)

// area is one rank's segment. Only that rank writes to it, except that other ranks leave results of reductions in its stages and its inline
// memory.
type area struct {
	slots    [places]*slot
	words    [places][]byte // slot.word of each slot
	inline   [places][]byte
	counters *[counterKinds]counter
	stages   [depth][]byte
}

// slot is what a rank publishes at the start of a call, in one cache line. The flag is set last.
//
// Other ranks poll the line, so their cores have it when its rank writes to it. A load from it would cost that rank as much again as the
// first store, even a load by which the compiler checks a pointer. So the field that is written first comes first, and only newArea makes
// pointers to word.
type slot struct {
	fingerprint Fingerprint
	ref         uint64         // the reference to a registered buffer; 0: none
	word        [wordSize]byte // the data, if it is not longer
	flag        atomic.Uint64  // the number of the call
}

// counter counts steps. It never decreases, and has a line of its own.
type counter struct {
	atomic.Uint64
	_ [2*line - 8]byte
}

// newArea lays out a segment. Slots are two lines apart, because some processors fetch lines in pairs.
func newArea(s *Segment) (area, error) {
	mem := s.Bytes()
	if len(mem) < AreaSize {
		return area{}, fmt.Errorf("the segment has %d bytes, fewer than %d", len(mem), AreaSize)
	}
	a := area{counters: (*[counterKinds]counter)(unsafe.Pointer(&mem[2*line*places]))}
	for i := range a.slots {
		a.slots[i] = (*slot)(unsafe.Pointer(&mem[2*line*i]))
		a.words[i] = a.slots[i].word[:]
		a.inline[i] = mem[inlineAt+i*inlineSize:][:inlineSize]
	}
	for i := range a.stages {
		a.stages[i] = mem[stagesAt+i*chunkSize:][:chunkSize]
	}
	return a, nil
}

// data returns the memory for n bytes of a call: in the line that has the flag if they fit there, or else in the inline memory.
func (a *area) data(place uint64, n int) []byte {
	if n <= wordSize {
		return a.words[place][:n]
	}
	return a.inline[place][:n]
}

const (
	// directFrom is the length in bytes from which ranks work directly in buffers if they can. For shorter buffers, the second exchange of
	// flags costs more than the copy saves.
	directFrom = 8 << 10

	refBits    = 48 // the bits of a reference that are the offset; the other bits are the region, from 1
	maxRegions = 1<<(64-refBits) - 2
)

// refOf returns the reference to buf in this rank's registered segments, or 0.
func (n *Node) refOf(buf []byte) uint64 {
	if len(buf) < directFrom {
		return 0
	}
	for i, region := range n.regions {
		own := region[n.rank]
		offset := uintptr(unsafe.Pointer(unsafe.SliceData(buf))) - uintptr(unsafe.Pointer(unsafe.SliceData(own)))
		if offset < uintptr(len(own)) && uintptr(len(buf)) <= uintptr(len(own))-offset {
			return uint64(i+1)<<refBits | uint64(offset)
		}
	}
	return 0
}

// reach is refOf for buffers that the others only read. If reads is set, they may also read buffers in this rank's own memory.
func (n *Node) reach(buf []byte, reads bool) uint64 {
	ref := n.refOf(buf)
	if address := addressOf(buf); ref == 0 && n.readable && reads && address>>refBits == 0 {
		return ownMemory<<refBits | address
	}
	return ref
}

// way says how the data of a call travels.
type way int

const (
	inlined way = iota
	direct
	staged
)

// residence says where the buffers of a call may be.
type residence bool

const (
	registered residence = false // in registered segments, which other ranks can also write
	anywhere   residence = true  // there, or in the rank's own memory, which other ranks can only read
)

// choose returns the way of a call in which rank r shares length(r) bytes, with elements of size bytes. fits says that ranks whose buffers
// cannot be reached have given their data inline. All ranks see the same slots, so they make the same choice.
func (n *Node) choose(length func(r int) int, size int, fits bool, in residence) (way, error) {
	reachable := 0
	for r := range n.ranks {
		if n.ranks[r].ref == 0 {
			continue
		}
		if err := n.resolve(r, length(r), size, in); err != nil {
			return 0, n.fail(err)
		}
		reachable++
	}
	switch {
	case reachable == len(n.ranks):
		return direct, nil
	case reachable == 0 && fits:
		return inlined, nil
	}
	return staged, nil
}

// resolve checks rank r's reference to a buffer, and stores where the buffer is: as a view of it, or else as its address in that rank's
// memory, which is checked when it is read.
func (n *Node) resolve(r, length, size int, in residence) error {
	state := &n.ranks[r]
	region, offset := state.ref>>refBits, state.ref&(1<<refBits-1)
	if region == ownMemory && in == anywhere && n.readable {
		state.view, state.address = nil, offset
		return nil
	}
	if region == 0 || region > uint64(len(n.regions)) || length < directFrom {
		return fmt.Errorf("%w: rank %d has a buffer of %d bytes in region %d of %d", ErrCorrupt, r, length, region, len(n.regions))
	}
	mem := n.regions[region-1][r]
	if offset > uint64(len(mem)) || uint64(length) > uint64(len(mem))-offset || offset%uint64(size) != 0 {
		return fmt.Errorf("%w: rank %d has a buffer of %d bytes at %d of %d", ErrCorrupt, r, length, offset, len(mem))
	}
	state.view = mem[offset:][:length]
	return nil
}
