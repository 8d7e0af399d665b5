package mpi

import "unsafe"

// arena is memory for the length of a call. It grows to what calls need, and then allocates nothing.
type arena struct {
	words []uint64 // of the whole
	used  int      // words
	wants int      // words that the call has asked for
}

// cacheLine keeps buffers that different cores write apart.
const cacheLine = 64

func (a *arena) reset() {
	if a.wants > len(a.words) {
		a.words = make([]uint64, a.wants)
	}
	a.used, a.wants = 0, 0
}

// take returns n bytes of undefined content, aligned for every element type.
func (a *arena) take(n int) []byte {
	words := (n + cacheLine - 1) / cacheLine * (cacheLine / 8)
	a.wants += words
	if a.used+words > len(a.words) {
		return bytesOfWords(make([]uint64, words))[:n] // reset makes room for the next call
	}
	part := a.words[a.used : a.used+words]
	a.used += words
	return bytesOfWords(part)[:n:n]
}

func bytesOfWords(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
}
