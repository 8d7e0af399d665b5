package mpi

import (
	"fmt"

	"ddpbatch/mpi/transport"
)

// collective is the code of a kind of call. The codes are part of the wire's format.
type collective uint8

const (
	initCall collective = iota // the zero transport.Call: how every mesh begins
	allReduceCall
	broadcastCall
	barrierCall
)

// describe words a fingerprint as errors show it, such as "all_reduce #7 float32 x 10 sum".
// Fingerprints come off the wire, too: no code is taken for granted.
func describe(call transport.Call) string {
	switch collective(call.Collective) {
	case initCall:
		return "init"
	case allReduceCall:
		return fmt.Sprintf("all_reduce #%d %s x %d %v", call.Seq, elementName(call.Element), call.Count, Op(call.Op))
	case broadcastCall:
		return fmt.Sprintf("broadcast #%d %s x %d from rank %d", call.Seq, elementName(call.Element), call.Count, call.Root)
	case barrierCall:
		return fmt.Sprintf("barrier #%d", call.Seq)
	}
	return fmt.Sprintf("collective %d #%d", call.Collective, call.Seq)
}

func elementName(code uint8) string {
	if int(code) >= len(elementNames) || elementNames[code] == "" {
		return fmt.Sprintf("element type %d", code)
	}
	return elementNames[code]
}
