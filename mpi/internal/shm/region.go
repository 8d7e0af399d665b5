package shm

import (
	"fmt"
	"unsafe"
)

const (
	// directFrom is the length in bytes from which buffers go directly where they can: below, the second exchange of
	// flags costs more than the copy saves.
	directFrom = 8 << 10

	refBits    = 48 // of a reference that are the offset; the others are the region, from 1
	maxRegions = 1<<(64-refBits) - 1
)

// way is how the data of a call goes.
type way int

const (
	inlined way = iota
	direct
	staged
)

// refOf finds buf in this rank's registered segments.
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

// choose finds the way of a call whose shared buffers have length bytes, of elements of size bytes. fits tells that data was
// given inline by those who have no registered buffer. As all ranks see the same slots, they choose alike.
func (n *Node) choose(length, size int, fits bool) (way, error) {
	registered := 0
	for r := range n.ranks {
		state := &n.ranks[r]
		if state.view = nil; state.ref == 0 {
			continue
		}
		view, err := n.resolve(r, length, size)
		if err != nil {
			return 0, n.fail(err)
		}
		state.view = view
		registered++
	}
	switch {
	case registered == len(n.ranks):
		return direct, nil
	case registered == 0 && fits:
		return inlined, nil
	}
	return staged, nil
}

// resolve checks rank r's reference to a buffer.
func (n *Node) resolve(r, length, size int) ([]byte, error) {
	region, offset := n.ranks[r].ref>>refBits, n.ranks[r].ref&(1<<refBits-1)
	if region == 0 || region > uint64(len(n.regions)) || length < directFrom {
		return nil, fmt.Errorf("%w: rank %d has a buffer of %d bytes in region %d of %d", ErrCorrupt, r, length, region, len(n.regions))
	}
	mem := n.regions[region-1][r]
	if offset > uint64(len(mem)) || uint64(length) > uint64(len(mem))-offset || offset%uint64(size) != 0 {
		return nil, fmt.Errorf("%w: rank %d has a buffer of %d bytes at %d of %d", ErrCorrupt, r, length, offset, len(mem))
	}
	return mem[offset:][:length], nil
}
