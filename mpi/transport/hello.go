package transport

import (
	"encoding/binary"
	"fmt"

	"ddpbatch/mpi/internal/shm"
)

// hello is what a rank says of itself, and of the connection, within the handshake. Memory is the handle of what it offers to
// share, or zero.
type hello struct {
	rank, size uint32
	near       uint32 // 1: it has found the other rank to be on its machine
	pid, bell  uint32 // where its bell is found, if pid is not 0
	stream     uint32 // 0: the control link; from 1 on: that stream of the data link
	streams    uint32 // how many the data link is to have if no memory is shared
	try        uint32 // of this process at this rank: the connections of an older one are given up
	nonce      nonce
	memory     [shm.HandleSize]byte
}

// nonce tells a process that comes again from another one that says it is the same rank.
type nonce [16]byte

const helloNumbers = 8

// helloSize is the length of a hello, in bytes: the numbers, big-endian as the rest of the handshake, the nonce, then the handle.
const helloSize = 4*helloNumbers + len(nonce{}) + shm.HandleSize

func (h hello) encode() []byte {
	buf := make([]byte, 0, helloSize)
	for _, n := range [helloNumbers]uint32{h.rank, h.size, h.near, h.pid, h.bell, h.stream, h.streams, h.try} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	return append(append(buf, h.nonce[:]...), h.memory[:]...)
}

func decodeHello(buf []byte) (hello, error) {
	if len(buf) != helloSize {
		return hello{}, fmt.Errorf("%w: a hello of %d bytes", ErrProtocol, len(buf))
	}
	number := func(i int) uint32 { return binary.BigEndian.Uint32(buf[4*i:]) }
	h := hello{
		rank: number(0), size: number(1), near: number(2), pid: number(3), bell: number(4),
		stream: number(5), streams: number(6), try: number(7),
	}
	n := copy(h.nonce[:], buf[4*helloNumbers:])
	copy(h.memory[:], buf[4*helloNumbers+n:])
	return h, nil
}

func (h hello) offers() bool { return h.memory != [shm.HandleSize]byte{} }

// answer is the byte that the accepting rank says to a connection that has proved itself.
type answer byte

const (
	welcome answer = iota + 1
	impossible
	duplicate
	sharing  // welcome, and the memory that was offered is open
	unshared // there is no memory to share, and no other way is allowed
	stray    // nobody waits for this connection: it is of a try that is over
)

// How the dialling rank confirms that it has heard its welcome, which ends the handshake.
const (
	useNoMemory byte = iota
	useMemory
)

func (a answer) err() error {
	switch a {
	case welcome, sharing:
		return nil
	case impossible:
		return fmt.Errorf("%w: no such rank is due there", errRefused)
	case duplicate:
		return fmt.Errorf("%w: a rank of that number is there already", errRefused)
	case unshared:
		return fmt.Errorf("%w: %w", errRefused, errNoSharing)
	case stray:
		return errStray
	}
	return fmt.Errorf("%w: answer %d", ErrProtocol, a)
}
