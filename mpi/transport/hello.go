package transport

import (
	"encoding/binary"
	"fmt"
)

// hello is what a rank says of itself within the handshake: 8 bytes, big-endian
// as the rest of the handshake.
type hello struct {
	rank, size uint32
}

func (h hello) encode() []byte {
	buf := binary.BigEndian.AppendUint32(nil, h.rank)
	return binary.BigEndian.AppendUint32(buf, h.size)
}

func decodeHello(buf []byte) (hello, error) {
	if len(buf) != 8 {
		return hello{}, fmt.Errorf("%w: a hello of %d bytes", ErrProtocol, len(buf))
	}
	return hello{rank: binary.BigEndian.Uint32(buf), size: binary.BigEndian.Uint32(buf[4:])}, nil
}

func (cfg Config) hello() hello { return hello{rank: uint32(cfg.Rank), size: uint32(cfg.Size)} }

// answer is the byte with which the accepting rank ends the handshake.
type answer byte

const (
	welcome answer = iota + 1
	impossible
	duplicate
)

func (a answer) err() error {
	switch a {
	case welcome:
		return nil
	case impossible:
		return fmt.Errorf("%w: no such rank is due there", errRefused)
	case duplicate:
		return fmt.Errorf("%w: a rank of that number is there already", errRefused)
	}
	return fmt.Errorf("%w: answer %d", ErrProtocol, a)
}
