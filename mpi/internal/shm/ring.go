package shm

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

const (
	line = 64 // bytes of a cache line on amd64, and on most arm64

	// RingOverhead is what a ring needs of its memory besides its capacity, in bytes.
	RingOverhead = 2 * line

	// ringPiece is after how many bytes of a long message the other side is let at them, so that
	// both sides copy at once.
	ringPiece = 32 << 10
)

// ringIndex are the bytes ever written and read, each changed by one side only and on a line of its own.
type ringIndex struct {
	written atomic.Uint64
	_       [line - 8]byte
	read    atomic.Uint64
	_       [line - 8]byte
}

// Ring is one side of a ring of bytes in shared memory: a queue with one writer
// and one reader. The writer uses Write only, the reader Read only; neither ever waits. Each side is for one goroutine.
//
// It is the queue of Lamport (1983), with each side's copy of the other's index (Giacomoni et al.,
// FastForward, PPoPP 2008): a line moves between the cores only when the copy does not do. A capacity of
// 256 KiB to 1 MiB lets long messages through at about the speed of a copy.
type Ring struct {
	shared *ringIndex
	data   []byte // its length is a power of 2
	mine   uint64 // this side's index
	shown  uint64 // a writer's index as the reader knows it
	theirs uint64 // the other side's, when last looked at
}

// NewRing lays a ring over memory that was zero when the first of the two sides did so. Its capacity is the
// largest power of 2 that fits beside RingOverhead. It panics if mem does not begin at a
// cache line or is too short.
func NewRing(mem []byte) *Ring {
	if len(mem) <= RingOverhead || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%line != 0 {
		panic("shm: no room for a ring")
	}
	capacity := 1 << (bits.Len(uint(len(mem)-RingOverhead)) - 1)
	return &Ring{shared: (*ringIndex)(unsafe.Pointer(unsafe.SliceData(mem))), data: mem[RingOverhead:][:capacity]}
}

// Write appends head and then body, as far as they fit, and returns how many bytes did. What is shorter
// than ringPiece becomes readable as a whole. The error matches ErrCorrupt.
func (r *Ring) Write(head, body []byte) (int, error) {
	n, err := r.append(head)
	if err == nil && n == len(head) {
		var more int
		more, err = r.append(body)
		n += more
	}
	r.publish()
	return n, err
}

func (r *Ring) append(part []byte) (int, error) {
	done := 0
	for done < len(part) {
		free, err := r.free(len(part) - done)
		if free == 0 || err != nil {
			return done, err
		}
		piece := part[done : done+min(len(part)-done, free, ringPiece)]
		at := int(r.mine) & (len(r.data) - 1)
		n := copy(r.data[at:], piece)
		copy(r.data, piece[n:])
		r.mine += uint64(len(piece))
		done += len(piece)
		if r.mine-r.shown >= ringPiece {
			r.publish()
		}
	}
	return done, nil
}

func (r *Ring) publish() {
	if r.shown != r.mine {
		r.shared.written.Store(r.mine)
		r.shown = r.mine
	}
}

// free is the room for a writer, looked up only if what is known is less than want.
func (r *Ring) free(want int) (int, error) {
	if free := len(r.data) - int(r.mine-r.theirs); free >= want {
		return free, nil
	}
	read := r.shared.read.Load()
	if r.mine-read > r.mine-r.theirs {
		return 0, fmt.Errorf("%w: a ring's reader went from %d to %d of %d", ErrCorrupt, r.theirs, read, r.mine)
	}
	r.theirs = read
	return len(r.data) - int(r.mine-read), nil
}

// Read takes up to len(buf) bytes, and returns how many. The error matches ErrCorrupt.
func (r *Ring) Read(buf []byte) (int, error) {
	done := 0
	for done < len(buf) {
		held, err := r.held(len(buf) - done)
		if held == 0 || err != nil {
			return done, err
		}
		piece := buf[done : done+min(len(buf)-done, held, ringPiece)]
		at := int(r.mine) & (len(r.data) - 1)
		n := copy(piece, r.data[at:])
		copy(piece[n:], r.data)
		r.mine += uint64(len(piece))
		done += len(piece)
		r.shared.read.Store(r.mine)
	}
	return done, nil
}

// held is what there is for a reader, looked up only if what is known is less than want.
func (r *Ring) held(want int) (int, error) {
	if held := int(r.theirs - r.mine); held >= want {
		return held, nil
	}
	written := r.shared.written.Load()
	if written-r.mine > uint64(len(r.data)) || written-r.mine < r.theirs-r.mine {
		return 0, fmt.Errorf("%w: a ring's writer went from %d to %d, and %d are read", ErrCorrupt, r.theirs, written, r.mine)
	}
	r.theirs = written
	return int(written - r.mine), nil
}
