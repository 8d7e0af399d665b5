package engine

import (
	"encoding/binary"
	"fmt"
	"time"
)

// status is what a rank last did in a group, as it tells others that wait for it.
type status struct {
	known   bool // the group is known there,
	gone    bool // or was
	running bool // call has not ended
	call    Call
	ago     time.Duration // since call began or ended
	waits   int           // the rank of the group that it waits for, or Any
	label   string        // who it is
}

// status of this rank. mu is held.
func (e *Engine) status(group uint64) *status {
	g := e.groups[group]
	if g == nil {
		_, gone := e.gone[group]
		return &status{gone: gone, waits: Any, label: e.options.Label}
	}
	s := &status{known: true, running: g.running(), call: g.call, ago: e.clock.Since(g.since()), waits: Any, label: e.options.Label}
	for _, w := range e.sleepers {
		if w.group == g && w.op != nil && w.op.peer != Any {
			s.waits, _ = g.rankOf(int(w.op.peer))
		}
	}
	return s
}

// encode gives the payload: a header with the call, a byte of flags, milliseconds in 8 bytes, the rank waited for or -1 in 4, the label.
func (s *status) encode() []byte {
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
	return append(payload, s.label[:min(len(s.label), maxControl-len(payload))]...)
}

// fixed is the length of what comes before the label.
const fixed = headerSize + 1 + 8 + 4

// decodeStatus reads the payload of a status frame about a group of size ranks.
func decodeStatus(payload []byte, size int) (*status, error) {
	if len(payload) < fixed {
		return nil, fmt.Errorf("%w: a status of %d bytes", ErrProtocol, len(payload))
	}
	h, err := decodeHeader((*[headerSize]byte)(payload))
	if err != nil {
		return nil, err
	}
	flags, ms := payload[headerSize], binary.LittleEndian.Uint64(payload[headerSize+1:])
	waits := int(int32(binary.LittleEndian.Uint32(payload[headerSize+9:])))
	if h.kind != kindStatus || flags > 7 || waits < Any || waits >= size {
		return nil, fmt.Errorf("%w: a status of kind %d with flags %x, of a rank that waits for rank %d", ErrProtocol, h.kind, flags, waits)
	}
	const century = 100 * 365 * 24 * time.Hour
	return &status{
		known: flags&1 != 0, running: flags&2 != 0, gone: flags&4 != 0, call: h.call,
		ago:   time.Duration(min(ms, uint64(century.Milliseconds()))) * time.Millisecond,
		waits: waits,
		label: printable(payload[fixed:]),
	}, nil
}

// progress orders ranks by how far they have come: a rank is in a call before it has finished it.
func (s *status) progress() uint64 {
	if s.running {
		return 2 * s.call.Seq
	}
	return 2*s.call.Seq + 1
}
