package shm

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

const (
	line = 64 // bytes of a cache line on amd64, and on most arm64

	// RingOverhead is how much of its memory a ring needs besides its capacity, in bytes.
	RingOverhead = 2 * line

	// ringPiece is the number of bytes of a long message after which the other side may read them, so that both sides copy at the same
	// time.
	ringPiece = 32 << 10
)

// ringIndex holds the numbers of bytes written and read so far. Only one side changes each of them, and each has its own cache line.
type ringIndex struct {
	written atomic.Uint64
	_       [line - 8]byte
	read    atomic.Uint64
	_       [line - 8]byte
}

// Ring is one side of a ring of bytes in shared memory: a queue with one writer and one reader. The writer calls only Write, and the reader
// only Read. Neither ever waits. Each side is for one goroutine.
//
// It is the queue of Lamport (1983), in which each side has a copy of the other's index (Giacomoni et al., FastForward, PPoPP 2008). So a
// cache line moves between the cores only if the copy is not enough. With a capacity of 256 KiB to 1 MiB, long messages pass at about the
// speed of a copy.
type Ring struct {
	shared *ringIndex
	data   []byte // its length is a power of 2
	mine   uint64 // this side's index
	shown  uint64 // the writer's index that the reader can see
	theirs uint64 // the other side's index when it was last read
}

// NewRing makes a ring in memory that was zero when the first of the two sides did so. Its capacity is the largest power of 2 that fits
// beside RingOverhead. NewRing panics if mem is too short or does not begin at a cache line.
func NewRing(mem []byte) *Ring {
	if len(mem) <= RingOverhead || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%line != 0 {
		panic("shm: memory for a ring is too short or not aligned")
	}
	capacity := 1 << (bits.Len(uint(len(mem)-RingOverhead)) - 1)
	return &Ring{shared: (*ringIndex)(unsafe.Pointer(unsafe.SliceData(mem))), data: mem[RingOverhead:][:capacity]}
}

// Write appends head and then body, as far as they fit, and returns the number of bytes that it has appended. If that is less than
// ringPiece, they become readable all at once. The error matches ErrCorrupt.
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

// free returns the room for a writer. It reads the reader's index only if the known room is less than want.
func (r *Ring) free(want int) (int, error) {
	if free := len(r.data) - int(r.mine-r.theirs); free >= want {
		return free, nil
	}
	read := r.shared.read.Load()
	if r.mine-read > r.mine-r.theirs {
		return 0, fmt.Errorf("%w: the index of a ring's reader went from %d to %d, with %d written", ErrCorrupt, r.theirs, read, r.mine)
	}
	r.theirs = read
	return len(r.data) - int(r.mine-read), nil
}

// Read moves up to len(buf) bytes to buf, and returns their number. The error matches ErrCorrupt.
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

// held returns the number of bytes for a reader. It reads the writer's index only if the known number is less than want.
func (r *Ring) held(want int) (int, error) {
	if held := int(r.theirs - r.mine); held >= want {
		return held, nil
	}
	written := r.shared.written.Load()
	if written-r.mine > uint64(len(r.data)) || written-r.mine < r.theirs-r.mine {
		return 0, fmt.Errorf("%w: the index of a ring's writer went from %d to %d, with %d read", ErrCorrupt, r.theirs, written, r.mine)
	}
	r.theirs = written
	return int(written - r.mine), nil
}
