package engine

import (
	"encoding/binary"
	"fmt"
	"time"

	"ddpbatch/internal/text"
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
	kindQuery                           // asks what the receiver did last in a group
	kindStatus                          // answers a query
)

// maxControl is the largest payload of the kinds that the engine itself reads.
const maxControl = 2048

// maxPayload is the largest payload of all kinds. A larger one is an error.
const maxPayload = 1 << 40

// header precedes every payload. The package documentation shows its layout.
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

// decodeHeader is the inverse of encode. It accepts only headers with a known kind and a length that this kind may have.
func decodeHeader(buf *[headerSize]byte) (header, error) {
	if buf[0] != 'd' || buf[1] != 'M' || buf[36]|buf[37]|buf[38]|buf[39] != 0 {
		return header{}, fmt.Errorf("%w: got a frame that begins with % x", ErrProtocol, buf[:8])
	}
	if buf[2] != frameVersion {
		return header{}, fmt.Errorf("%w: got frame version %d, want %d", ErrProtocol, buf[2], frameVersion)
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
		return header{}, fmt.Errorf("%w: got a frame of unknown kind %d", ErrProtocol, h.kind)
	}
	if most := h.kind.maxLength(); h.length > most {
		return header{}, fmt.Errorf("%w: got a frame of kind %d with %d bytes, more than %d", ErrProtocol, h.kind, h.length, most)
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

// carriesData reports whether the payload of the kind belongs to a rank, and not to the engine.
func (k frameKind) carriesData() bool { return k == kindCollective || k == kindMessage }

// goesByData reports whether frames of the kind use the data link. These are payloads, and leave frames, which follow them. All other
// frames may overtake them.
func (k frameKind) goesByData() bool { return k.carriesData() || k == kindLeave }

// isGoodbye reports whether frames of the kind may come on either link: see Engine.goodbyeLane.
func (k frameKind) isGoodbye() bool { return k == kindLeave || k == kindBye }

// encode returns the payload: By and Rank in 4 bytes each, the reason in 1, and the text, which is cut if it is too long.
func (a *AbortError) encode() []byte {
	payload := make([]byte, 0, maxControl)
	payload = binary.LittleEndian.AppendUint32(payload, uint32(a.By))
	payload = binary.LittleEndian.AppendUint32(payload, uint32(a.Rank))
	code := byte(0)
	for i, reason := range reasons {
		if a.Reason == reason {
			code = byte(i)
		}
	}
	payload = append(payload, code)
	return append(payload, text.Cut(a.Text, cap(payload)-len(payload))...)
}

// decodeAbort reads the payload of an abort frame in a group of size ranks.
func decodeAbort(payload []byte, size int) (*AbortError, error) {
	if len(payload) < 9 {
		return nil, fmt.Errorf("%w: got an abort of %d bytes", ErrProtocol, len(payload))
	}
	by, rank := binary.LittleEndian.Uint32(payload), binary.LittleEndian.Uint32(payload[4:])
	code := int(payload[8])
	if int64(by) >= int64(size) || int64(rank) >= int64(size) || code >= len(reasons) {
		return nil, fmt.Errorf("%w: got an abort by rank %d about rank %d with reason %d", ErrProtocol, by, rank, code)
	}
	return &AbortError{By: int(by), Rank: int(rank), Reason: reasons[code], Text: text.Clean(string(payload[9:]))}, nil
}

// groupStatus says what a rank did last in a group. It is the answer to a query.
type groupStatus struct {
	known   bool // the rank is in the group,
	gone    bool // or was
	running bool // call has not ended
	call    Call
	ago     time.Duration // since call began or ended
	waits   int           // the rank of the group for which it waits, or Any
	label   string        // Options.Label of the rank
}

// encode returns the payload: a header with the call, a byte of flags, milliseconds in 8 bytes, the rank that it waits for or -1 in 4
// bytes, and the label.
func (s *groupStatus) encode() []byte {
	var head [headerSize]byte
	h := header{kind: kindStatus, call: s.call}
	h.encode(&head)
	flags := byte(0)
	if s.known {
		flags |= 1
	}
	if s.running {
		flags |= 2
	}
	if s.gone {
		flags |= 4
	}
	payload := append(head[:], flags)
	payload = binary.LittleEndian.AppendUint64(payload, uint64(s.ago.Milliseconds()))
	payload = binary.LittleEndian.AppendUint32(payload, uint32(int32(s.waits)))
	return append(payload, text.Cut(s.label, maxControl-len(payload))...)
}

// statusFixedSize is the length of what precedes the label.
const statusFixedSize = headerSize + 1 + 8 + 4

// decodeStatus reads the payload of a status frame about a group of size ranks.
func decodeStatus(payload []byte, size int) (*groupStatus, error) {
	if len(payload) < statusFixedSize {
		return nil, fmt.Errorf("%w: got a status of %d bytes", ErrProtocol, len(payload))
	}
	h, err := decodeHeader((*[headerSize]byte)(payload))
	if err != nil {
		return nil, err
	}
	flags, ms := payload[headerSize], binary.LittleEndian.Uint64(payload[headerSize+1:])
	waits := int(int32(binary.LittleEndian.Uint32(payload[headerSize+9:])))
	if h.kind != kindStatus || flags > 7 || waits < Any || waits >= size {
		return nil, fmt.Errorf("%w: got a status of kind %d with flags %x and rank %d as waited for", ErrProtocol, h.kind, flags, waits)
	}
	const century = 100 * 365 * 24 * time.Hour
	return &groupStatus{
		known: flags&1 != 0, running: flags&2 != 0, gone: flags&4 != 0, call: h.call,
		ago:   time.Duration(min(ms, uint64(century.Milliseconds()))) * time.Millisecond,
		waits: waits,
		label: text.Clean(string(payload[statusFixedSize:])),
	}, nil
}
