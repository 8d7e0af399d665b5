package mpi

import "unsafe"

// arena is memory for the length of a call. It grows to what calls need, and then allocates nothing; what calls have not needed for
// a while it gives up.
type arena struct {
	words []uint64 // of the whole
	used  int      // words
	wants int      // words that the call has asked for
	idle  int      // calls in a row that needed little of it
}

const (
	// cacheLine keeps buffers that different cores write apart.
	cacheLine = 64

	patient = 1000    // calls that need little of an arena, before it is given up
	modest  = 1 << 17 // words that are not worth giving up
)

// reset begins a call.
func (a *arena) reset() {
	switch {
	case len(a.words) <= modest || a.wants > len(a.words)/4:
		a.idle = 0
	default:
		if a.idle++; a.idle == patient {
			a.words, a.idle = nil, 0
		}
	}
	a.used = 0
	a.wants = 0
}

// take returns n bytes of undefined content, aligned for every element type.
func (a *arena) take(n int) []byte {
	words := (n + cacheLine - 1) / cacheLine * (cacheLine / 8)
	a.wants += words
	if a.wants > len(a.words) {
		// What the call has got so far stays its own; later calls find room for all.
		a.words, a.used = make([]uint64, a.wants), 0
	}
	part := a.words[a.used : a.used+words]
	a.used += words
	return bytesOfWords(part)[:n:n]
}

func bytesOfWords(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
}
