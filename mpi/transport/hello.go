package transport

import (
	"encoding/binary"
	"fmt"

	"ddpbatch/mpi/internal/shm"
)

// hello is what a rank says of itself within the handshake. Memory is the handle of what it offers to share, or zero.
type hello struct {
	rank, size uint32
	near       uint32 // 1: it has found the other rank to be on its machine
	pid, bell  uint32 // where its bell is found, if pid is not 0
	memory     [shm.HandleSize]byte
}

// helloSize is the length of a hello, in bytes: the numbers, big-endian as the rest of the handshake, then the handle.
const helloSize = 20 + shm.HandleSize

func (h hello) encode() []byte {
	buf := make([]byte, 0, helloSize)
	for _, n := range [...]uint32{h.rank, h.size, h.near, h.pid, h.bell} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	return append(buf, h.memory[:]...)
}

func decodeHello(buf []byte) (hello, error) {
	if len(buf) != helloSize {
		return hello{}, fmt.Errorf("%w: a hello of %d bytes", ErrProtocol, len(buf))
	}
	number := func(i int) uint32 { return binary.BigEndian.Uint32(buf[4*i:]) }
	h := hello{rank: number(0), size: number(1), near: number(2), pid: number(3), bell: number(4)}
	copy(h.memory[:], buf[20:])
	return h, nil
}

func (h hello) offers() bool { return h.memory != [shm.HandleSize]byte{} }

// answer is the byte with which the accepting rank ends the handshake.
type answer byte

const (
	welcome answer = iota + 1
	impossible
	duplicate
	sharing  // welcome, and the memory that was offered is open
	unshared // there is no memory to share, and no other way is allowed
)

// How the dialling rank answers that its memory is open.
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
	}
	return fmt.Errorf("%w: answer %d", ErrProtocol, a)
}
