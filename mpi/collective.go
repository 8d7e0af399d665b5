package mpi

import (
	"fmt"

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

var collectiveNames = [...]string{
	setupCall: "init", allReduceCall: "all_reduce", broadcastCall: "broadcast", barrierCall: "barrier", reduceCall: "reduce",
	allGatherCall: "all_gather", gatherCall: "gather", scatterCall: "scatter", reduceScatterCall: "reduce_scatter",
	allToAllCall: "all_to_all", scanCall: "scan", exscanCall: "exscan", groupCall: "new_group", allocCall: "alloc", messageCall: "message", monitoredCall: "monitored_barrier",
}

func (c collective) String() string {
	if int(c) >= len(collectiveNames) {
		return fmt.Sprintf("collective %d", uint8(c))
	}
	return collectiveNames[c]
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
	switch kind {
	case broadcastCall, scatterCall:
		text += fmt.Sprintf(" from rank %d", call.Root)
	case reduceCall, gatherCall:
		text += fmt.Sprintf(" to rank %d", call.Root)
	case allGatherCall, reduceScatterCall:
		if call.Root != 0 {
			text += fmt.Sprintf(" with counts of digest %x", uint32(call.Root))
		}
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

// stampOf is a fingerprint for shared memory.
func stampOf(call *engine.Call) shm.Stamp {
	codes := uint32(call.Collective) | uint32(call.Element)<<8 | uint32(call.Op)<<16 | uint32(call.Algorithm)<<24
	return shm.Stamp{call.Group, call.Seq, call.Count, uint64(uint32(call.Root)) | uint64(codes)<<32}
}

// callOf is the reverse.
func callOf(s shm.Stamp) engine.Call {
	codes := uint32(s[3] >> 32)
	return engine.Call{
		Group: s[0], Seq: s[1], Count: s[2], Root: int32(uint32(s[3])),
		Collective: uint8(codes), Element: uint8(codes >> 8), Op: uint8(codes >> 16), Algorithm: uint8(codes >> 24),
	}
}
