package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"ddpbatch/internal/auth"
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

// introduce goes through the handshake of a connection that was dialled.
func (s *meeting) introduce(
	ctx context.Context, conn *net.TCPConn, key auth.Secret, st *seat, stream int, offer *pair,
) (keys *sealing, shared bool, err error) {
	addr := conn.RemoteAddr()
	ours := s.hello(stream, st.try, st.near, offer).encode()
	theirs, err := auth.Client(ctx, conn, key, s.cfg.binding(), ours)
	if errors.Is(err, auth.ErrRefused) {
		err = fmt.Errorf("%w; or one of the two ranks encrypts its data (mpi.encrypt), and the other does not", err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	h, err := decodeHello(theirs)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	if int64(h.size) != int64(s.cfg.Size) {
		return nil, false, fmt.Errorf("%w: rank %d is in a world of %d, and this one in a world of %d: start all ranks with the same world size",
			errRefused, h.rank, h.size, s.cfg.Size)
	}
	if int64(h.rank) != int64(st.rank) {
		return nil, false, fmt.Errorf("%s is rank %d, not rank %d", addr, h.rank, st.rank)
	}
	keys = newSealing(key, ours, theirs, true)
	reply, err := keys.hear(conn)
	if err != nil {
		return nil, false, fmt.Errorf("%s: wait for its answer: %w", addr, err)
	}
	if err := answer(reply).err(); err != nil {
		return nil, false, fmt.Errorf("rank %d at %s: %w", st.rank, addr, err)
	}
	use := useNoMemory
	if answer(reply) == sharing && offer != nil && offer.openBell(h) == nil {
		use = useMemory
	}
	err = keys.say(conn, use)
	return keys, err == nil && use == useMemory, err
}

// hello says who this rank is, which of its connections this is, and what memory it offers.
func (s *meeting) hello(stream int, try uint32, near bool, offer *pair) hello {
	h := hello{
		rank: uint32(s.cfg.Rank), size: uint32(s.cfg.Size), nonce: s.nonce,
		stream: uint32(stream), streams: uint32(s.cfg.streams(near)), try: try,
	}
	if near {
		h.near = 1
	}
	if s.cfg.Sharing != ShareNever {
		h.pid, h.bell = uint32(os.Getpid()), uint32(s.bell.write)
	}
	if offer != nil {
		h.memory = offer.segment.Handle().Encode()
	}
	return h
}

// visitor is a connection that has proved itself.
type visitor struct {
	conn    sealedConn
	hello   hello
	release func() bool // keeps the end of the meeting from closing conn, unless it has already
}

func (v *visitor) refuse(reply answer) error {
	v.conn.keys.say(v.conn, byte(reply))
	return reply.err()
}

// admit says welcome, and returns with what that was confirmed. The connection then outlives the meeting.
func (v *visitor) admit(reply answer) (use byte, err error) {
	if err := tune(v.conn.TCPConn); err != nil {
		return 0, err
	}
	if err := v.conn.keys.say(v.conn, byte(reply)); err != nil {
		return 0, fmt.Errorf("welcome it: %w", err)
	}
	if use, err = v.conn.keys.hear(v.conn); err != nil {
		return 0, fmt.Errorf("wait for it to confirm its welcome: %w", err)
	}
	if use != useNoMemory && (use != useMemory || reply != sharing) {
		return 0, fmt.Errorf("%w: it confirms its welcome with %d", ErrProtocol, use)
	}
	if !v.release() {
		return 0, net.ErrClosed
	}
	return use, v.conn.SetDeadline(time.Time{})
}
