package mpi

import (
	"fmt"

	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/shm"
)

// call returns the operation's fingerprint.
func (o *operation) call(k *core) engine.Call {
	call := engine.Call{
		Seq: k.seq, Count: countOf(o.count, o.digest^o.op.digest), Root: int32(o.root),
		Collective: uint8(o.kind), Element: uint8(o.data), Op: o.op.code, Algorithm: o.code,
	}
	if k.group != nil {
		call.Group = k.group.ID()
	}
	return call
}

const (
	// noCount is the count of a call whose ranks have buffers of different lengths.
	noCount = 1<<64 - 1

	// countBits is how many bits of a fingerprint's count hold the count itself. The bits above hold a digest of what has no other field.
	countBits = 40
)

// countOf returns a fingerprint's count.
func countOf(count uint64, digest uint32) uint64 {
	if count == noCount || digest == 0 {
		return count
	}
	return count | uint64(digest^digest>>24)<<countBits
}

// fingerprintOf returns a fingerprint for shared memory.
func fingerprintOf(call *engine.Call) shm.Fingerprint {
	codes := uint32(call.Collective) | uint32(call.Element)<<8 | uint32(call.Op)<<16 | uint32(call.Algorithm)<<24
	return shm.Fingerprint{call.Group, call.Seq, call.Count, uint64(uint32(call.Root)) | uint64(codes)<<32}
}

// callOf is the inverse of fingerprintOf.
func callOf(s shm.Fingerprint) engine.Call {
	codes := uint32(s[3] >> 32)
	return engine.Call{
		Group: s[0], Seq: s[1], Count: s[2], Root: int32(uint32(s[3])),
		Collective: uint8(codes), Element: uint8(codes >> 8), Op: uint8(codes >> 16), Algorithm: uint8(codes >> 24),
	}
}

// digestOfCounts returns a hash of counts (FNV-1a), for the field of the fingerprint that holds the root of other collectives. It is not 0.
func digestOfCounts(counts []int) int {
	h := uint32(2166136261)
	for _, n := range counts {
		for shift := 0; shift < 64; shift += 8 {
			h = (h ^ uint32(byte(uint64(n)>>shift))) * 16777619
		}
	}
	return int(int32(h | 1))
}

// describe formats a fingerprint for errors, such as "all_reduce #7 float32 x 10 sum". It leaves out the algorithm. Fingerprints also come
// off the wire, so it accepts any codes.
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

// describeFully also formats the algorithm, so that two fingerprints that differ also read differently.
func describeFully(call engine.Call) string {
	text := describe(call) + " by " + algorithmName(collective(call.Collective), call.Algorithm)
	if digest := call.Count >> countBits; digest != 0 && call.Element != 0 && call.Count != noCount {
		text += fmt.Sprintf(" with digest %x", digest)
	}
	return text
}
