package transport

import (
	"errors"
	"fmt"
	"slices"
)

// seat is what a meeting has of one other rank. All of it is of one process, and of one try of that.
type seat struct {
	rank    int
	nonce   nonce
	try     uint32
	near    bool          // the rank is on this machine, whether memory is shared or not
	heard   chan struct{} // closed when control is there, or never will be
	control *sealedConn   // nil until the dialling rank has confirmed it
	pair    *pair         // nil where no memory is shared
	streams []*sealedConn // of the data link, where no memory is shared; nil are those that are not there yet
}

// absent tells what is missing of the rank, or nothing where nothing is.
func (st *seat) absent() string {
	if st.control == nil {
		return "it has connected, but has not confirmed that it was let in"
	}
	there := 0
	for _, conn := range st.streams {
		if conn != nil {
			there++
		}
	}
	if there < len(st.streams) {
		return fmt.Sprintf("%d of its %d data streams are there", there, len(st.streams))
	}
	return ""
}

func (st *seat) complete() bool { return st.absent() == "" }

func (st *seat) close() {
	for _, conn := range slices.Concat(st.streams, []*sealedConn{st.control}) {
		if conn != nil {
			conn.Close()
		}
	}
	if st.pair != nil {
		st.pair.close()
	}
}

// claim reserves the seat of a rank that has proved itself, before it is told so. Another try of the process that has it takes it
// over: the one before was not heard.
func (s *meeting) claim(h hello) (*seat, answer) {
	rank := int(h.rank)
	if int64(h.size) != int64(s.cfg.Size) || int64(h.rank) >= int64(h.size) || rank <= s.cfg.Rank || h.streams < 1 || h.streams > MaxStreams {
		return nil, impossible
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.seats[rank]; old != nil {
		switch same := old.nonce == h.nonce; {
		case !same && old.control != nil:
			return nil, duplicate
		case !same, old.try >= h.try, s.missing == 0:
			return nil, stray // a process that claimed it and never confirms will lose it soon
		}
		s.vacate(old)
	}
	st := &seat{
		rank: rank, nonce: h.nonce, try: h.try, near: h.near == 1, heard: make(chan struct{}),
		streams: make([]*sealedConn, h.streams),
	}
	s.seats[rank] = st
	return st, welcome
}

// awaiting is the seat that waits for a stream of the data link, or nil.
func (s *meeting) awaiting(h hello) *seat {
	if int64(h.rank) >= int64(s.cfg.Size) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.seats[h.rank]
	if st == nil || st.nonce != h.nonce || st.try != h.try || int64(h.stream) > int64(len(st.streams)) || st.streams[h.stream-1] != nil {
		return nil
	}
	return st
}

// seatControl takes a confirmed control connection, and the memory shared with the rank, or nil.
func (s *meeting) seatControl(st *seat, conn *sealedConn, p *pair) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seats[st.rank] != st {
		return errStray
	}
	st.control, st.pair = conn, p
	if p != nil {
		st.streams = nil
	}
	close(st.heard)
	s.count(st)
	return nil
}

// seatStream takes a confirmed stream of the data link, from 1 on.
func (s *meeting) seatStream(st *seat, stream uint32, conn *sealedConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seats[st.rank] != st || st.control == nil || int64(stream) > int64(len(st.streams)) || st.streams[stream-1] != nil {
		return errStray
	}
	st.streams[stream-1] = conn
	s.count(st)
	return nil
}

// seatAll takes a rank that this one has dialled.
func (s *meeting) seatAll(st *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats[st.rank] = st
	s.count(st)
}

// count notes the arrival of all of a rank. mu is held.
func (s *meeting) count(st *seat) {
	if !st.complete() {
		return
	}
	if s.missing--; s.missing == 0 {
		close(s.done)
	}
}

// leave gives back a seat whose control connection broke.
func (s *meeting) leave(st *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seats[st.rank] == st {
		s.vacate(st)
	}
}

// vacate closes all there is of a rank. mu is held.
func (s *meeting) vacate(st *seat) {
	if st.complete() {
		s.missing++
	}
	if st.control == nil {
		close(st.heard)
	}
	s.seats[st.rank] = nil
	st.close()
}

// errStray is told to a connection of a try that is over: the next one may be let in.
var errStray = errors.New("nobody waits for this connection")
