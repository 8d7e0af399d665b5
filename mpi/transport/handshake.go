package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/internal/shm"
)

// hello is what a rank says of itself, and of the connection, within the handshake. Memory is the handle of what it offers to
// share, or zero.
type hello struct {
	rank, size uint32
	local      uint32 // 1: it has found the other rank to be on its machine
	pid, pipe  uint32 // where its wake pipe is found, if pid is not 0
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
	for _, n := range [helloNumbers]uint32{h.rank, h.size, h.local, h.pid, h.pipe, h.stream, h.streams, h.try} {
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
		rank: number(0), size: number(1), local: number(2), pid: number(3), pipe: number(4),
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
	answerWelcome answer = iota + 1
	answerImpossible
	answerDuplicate
	answerSharing  // welcome, and the memory that was offered is open
	answerUnshared // there is no memory to share, and no other way is allowed
	answerStale    // nobody waits for this connection: it is of a try that is over
)

// How the dialing rank confirms that its welcome has arrived, which ends the handshake.
const (
	useNoMemory byte = iota
	useMemory
)

func (a answer) err() error {
	switch a {
	case answerWelcome, answerSharing:
		return nil
	case answerImpossible:
		return fmt.Errorf("%w: no such rank is due there", errRefused)
	case answerDuplicate:
		return fmt.Errorf("%w: a rank of that number is there already", errRefused)
	case answerUnshared:
		return fmt.Errorf("%w: %w", errRefused, errNoSharing)
	case answerStale:
		return errStale
	}
	return fmt.Errorf("%w: answer %d", ErrProtocol, a)
}

// dialHandshake goes through the handshake of a connection that was dialed.
func (c *connector) dialHandshake(
	ctx context.Context, conn *net.TCPConn, key auth.Secret, r *remoteRank, stream int, offer *pairMemory,
) (keys *sealing, shared bool, err error) {
	addr := conn.RemoteAddr()
	ours := c.ownHello(stream, r.try, r.local, offer).encode()
	theirs, err := auth.Client(ctx, conn, key, c.cfg.binding(), ours)
	if errors.Is(err, auth.ErrRefused) {
		err = fmt.Errorf("%w; or mpi.encrypt or mpi.transport is not the same for the two ranks", err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	h, err := decodeHello(theirs)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	if int64(h.size) != int64(c.cfg.Size) {
		return nil, false, fmt.Errorf("%w: rank %d is in a world of %d, and this one in a world of %d: start all "+
			"ranks with the same world size",
			errRefused, h.rank, h.size, c.cfg.Size)
	}
	if int64(h.rank) != int64(r.rank) {
		return nil, false, fmt.Errorf("%s is rank %d, not rank %d", addr, h.rank, r.rank)
	}
	keys = newSealing(key, ours, theirs, true)
	reply, err := keys.receiveByte(conn)
	if err != nil {
		return nil, false, fmt.Errorf("%s: wait for its answer: %w", addr, err)
	}
	if err := answer(reply).err(); err != nil {
		return nil, false, fmt.Errorf("rank %d at %s: %w", r.rank, addr, err)
	}
	use := useNoMemory
	if answer(reply) == answerSharing && offer != nil && offer.openWakePipe(h) == nil {
		use = useMemory
	}
	err = keys.sendByte(conn, use)
	return keys, err == nil && use == useMemory, err
}

// ownHello says who this rank is, which of its connections this is, and what memory it offers.
func (c *connector) ownHello(stream int, try uint32, local bool, offer *pairMemory) hello {
	h := hello{
		rank: uint32(c.cfg.Rank), size: uint32(c.cfg.Size), nonce: c.nonce,
		stream: uint32(stream), streams: uint32(c.cfg.streams(local)), try: try,
	}
	if local {
		h.local = 1
	}
	if c.cfg.Sharing != ShareNever {
		h.pid, h.pipe = uint32(os.Getpid()), uint32(c.pipe.write)
	}
	if offer != nil {
		h.memory = offer.segment.Handle().Encode()
	}
	return h
}
