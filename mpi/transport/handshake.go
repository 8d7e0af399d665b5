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

// hello is what a rank sends about itself and about the connection in the handshake. memory is the handle of the memory that it offers to
// share, or zero.
type hello struct {
	rank, size uint32
	local      uint32 // 1 if it has found that the other rank is on its machine
	pid, pipe  uint32 // where to find its wake pipe, if pid is not 0
	stream     uint32 // 0: the control link; from 1 on: that stream of the data link
	streams    uint32 // the number of streams of the data link, if the ranks do not share memory
	try        uint32 // the number of this process's try to connect to the rank; connections of older tries are closed
	nonce      nonce
	memory     [shm.HandleSize]byte
}

// nonce distinguishes a process that tries again from another process with the same rank.
type nonce [16]byte

const helloNumbers = 8

// helloSize is the length of a hello, in bytes: the numbers, big-endian like the rest of the handshake, the nonce, and the handle.
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
		return hello{}, fmt.Errorf("%w: got a hello of %d bytes", ErrProtocol, len(buf))
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

// answer is the byte that the accepting rank sends to a connection that has proved itself.
type answer byte

const (
	answerWelcome answer = iota + 1
	answerImpossible
	answerDuplicate
	answerSharing  // a welcome; the offered memory is open
	answerUnshared // the ranks cannot share memory, and must not use anything else
	answerStale    // nothing waits for this connection, because its try has ended
)

// How the dialing rank confirms its welcome, which ends the handshake.
const (
	useNoMemory byte = iota
	useMemory
)

func (a answer) err() error {
	switch a {
	case answerWelcome, answerSharing:
		return nil
	case answerImpossible:
		return fmt.Errorf("%w: the accepting rank does not expect the dialing rank", errRefused)
	case answerDuplicate:
		return fmt.Errorf("%w: another process has already connected as the dialing rank", errRefused)
	case answerUnshared:
		return fmt.Errorf("%w: %w", errRefused, errNoSharing)
	case answerStale:
		return errStale
	}
	return fmt.Errorf("%w: got the answer %d", ErrProtocol, a)
}

// dialHandshake performs the handshake of a connection that this rank has dialed.
func (c *connector) dialHandshake(
	ctx context.Context, conn *net.TCPConn, key auth.Secret, r *remoteRank, stream int, offer *pairMemory,
) (keys *sealing, shared bool, err error) {
	addr := conn.RemoteAddr()
	ours := c.ownHello(stream, r.try, r.local, offer).encode()
	theirs, err := auth.Client(ctx, conn, key, c.cfg.binding(), ours)
	if errors.Is(err, auth.ErrRefused) {
		err = fmt.Errorf("%w; or mpi.encrypt or mpi.transport differ between the two ranks", err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	h, err := decodeHello(theirs)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	if int64(h.size) != int64(c.cfg.Size) {
		return nil, false, fmt.Errorf("%w: rank %d is in a world of %d ranks, but this one is in a world of %d: start all "+
			"ranks with the same world size",
			errRefused, h.rank, h.size, c.cfg.Size)
	}
	if int64(h.rank) != int64(r.rank) {
		return nil, false, fmt.Errorf("%s is rank %d, not rank %d", addr, h.rank, r.rank)
	}
	keys = newSealing(key, ours, theirs, true)
	reply, err := keys.receiveByte(conn)
	if err != nil {
		return nil, false, fmt.Errorf("%s: wait for the rank's answer: %w", addr, err)
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

// ownHello returns the hello of this rank for one of its connections.
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
