package transport

import (
	"encoding/binary"
	"fmt"
)

const (
	// MaxPayload is the most bytes that one frame carries.
	MaxPayload = 1 << 20

	frameVersion = 1
	headerSize   = 32
)

type frameKind uint8

const (
	kindData frameKind = iota + 1
	kindAbort
	kindBye
)

// maxLength is the longest payload of each kind of frame.
var maxLength = [...]uint32{kindData: MaxPayload, kindAbort: maxAbort, kindBye: 0}

// header is what precedes every payload. Package documentation shows its layout.
type header struct {
	kind   frameKind
	call   Call
	length uint32
}

func (h header) encode(buf *[headerSize]byte) {
	*buf = [headerSize]byte{'d', 'M', frameVersion, byte(h.kind), h.call.Collective, h.call.Element, h.call.Op}
	binary.LittleEndian.PutUint64(buf[8:], h.call.Seq)
	binary.LittleEndian.PutUint64(buf[16:], h.call.Count)
	binary.LittleEndian.PutUint32(buf[24:], uint32(h.call.Root))
	binary.LittleEndian.PutUint32(buf[28:], h.length)
}

// decodeHeader accepts exactly what encode makes of a header with a known kind
// and a length that this kind may have.
func decodeHeader(buf *[headerSize]byte) (header, error) {
	if buf[0] != 'd' || buf[1] != 'M' || buf[7] != 0 {
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
			Seq:        binary.LittleEndian.Uint64(buf[8:]),
			Count:      binary.LittleEndian.Uint64(buf[16:]),
			Root:       int32(binary.LittleEndian.Uint32(buf[24:])),
		},
		length: binary.LittleEndian.Uint32(buf[28:]),
	}
	if h.kind < kindData || h.kind > kindBye {
		return header{}, fmt.Errorf("%w: frame of unknown kind %d", ErrProtocol, h.kind)
	}
	if h.length > maxLength[h.kind] {
		return header{}, fmt.Errorf("%w: a frame of kind %d announces %d bytes, more than %d", ErrProtocol, h.kind, h.length, maxLength[h.kind])
	}
	return h, nil
}
