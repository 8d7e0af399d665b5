package engine

import (
	"encoding/binary"
	"fmt"
)

const (
	frameVersion = 2
	headerSize   = 48
)

type frameKind uint8

const (
	kindCollective frameKind = iota + 1 // a part of the collective that the call describes
	kindMessage                         // point to point
	kindAbort                           // the sender's part in a group has failed
	kindLeave                           // the sender has closed a group
	kindBye                             // the sender closes its engine
	kindQuery                           // what did you last do in this group?
	kindStatus                          // the answer
)

// maxControl is the longest payload of the kinds that the engine reads itself.
const maxControl = 2048

// maxPayload is the longest payload of all: what cannot be is not believed.
const maxPayload = 1 << 40

// header is what precedes every payload. Package documentation shows its layout.
type header struct {
	kind   frameKind
	call   Call
	length uint64
}

func (h *header) encode(buf *[headerSize]byte) {
	*buf = [headerSize]byte{'d', 'M', frameVersion, byte(h.kind), h.call.Collective, h.call.Element, h.call.Op, h.call.Algorithm}
	binary.LittleEndian.PutUint64(buf[8:], h.call.Group)
	binary.LittleEndian.PutUint64(buf[16:], h.call.Seq)
	binary.LittleEndian.PutUint64(buf[24:], h.call.Count)
	binary.LittleEndian.PutUint32(buf[32:], uint32(h.call.Root))
	binary.LittleEndian.PutUint64(buf[40:], h.length)
}

// decodeHeader accepts exactly what encode makes of a header with a known kind
// and a length that this kind may have.
func decodeHeader(buf *[headerSize]byte) (header, error) {
	if buf[0] != 'd' || buf[1] != 'M' || buf[36]|buf[37]|buf[38]|buf[39] != 0 {
		return header{}, fmt.Errorf("%w: a frame begins with % x", ErrProtocol, buf[:8])
	}
	if buf[2] != frameVersion {
		return header{}, fmt.Errorf("%w: frame version %d, not %d", ErrProtocol, buf[2], frameVersion)
	}
	h := header{
		kind: frameKind(buf[3]),
		call: Call{
			Collective: buf[4],
			Element:    buf[5],
			Op:         buf[6],
			Algorithm:  buf[7],
			Group:      binary.LittleEndian.Uint64(buf[8:]),
			Seq:        binary.LittleEndian.Uint64(buf[16:]),
			Count:      binary.LittleEndian.Uint64(buf[24:]),
			Root:       int32(binary.LittleEndian.Uint32(buf[32:])),
		},
		length: binary.LittleEndian.Uint64(buf[40:]),
	}
	if h.kind < kindCollective || h.kind > kindStatus {
		return header{}, fmt.Errorf("%w: frame of unknown kind %d", ErrProtocol, h.kind)
	}
	if most := h.kind.maxLength(); h.length > most {
		return header{}, fmt.Errorf("%w: a frame of kind %d announces %d bytes, more than %d", ErrProtocol, h.kind, h.length, most)
	}
	return h, nil
}

func (k frameKind) maxLength() uint64 {
	switch k {
	case kindCollective, kindMessage:
		return maxPayload
	case kindAbort, kindStatus:
		return maxControl
	}
	return 0
}

// carriesData tells the kinds whose payload is a rank's, and not the engine's.
func (k frameKind) carriesData() bool { return k == kindCollective || k == kindMessage }

// goesByData tells the kinds that go by the data link: payloads, and the goodbye to a group, which comes after them. All others
// overtake.
func (k frameKind) goesByData() bool { return k.carriesData() || k == kindLeave }
