package transport

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"ddpbatch/internal/auth"
)

// Connect meets the other ranks and returns when this one is connected to each of
// them. It tries until ctx ends, or until a rank refuses this one: because its world has another
// size, or has a rank of that number already. The error is then a MissingError.
func Connect(ctx context.Context, cfg Config) (*Sockets, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("connect ranks: %w", err)
	}
	own, err := newBell()
	if err != nil {
		return nil, fmt.Errorf("connect ranks: %w", err)
	}
	s, err := meet(ctx, cfg, own)
	if err != nil {
		own.close()
		return nil, fmt.Errorf("connect ranks: %w", err)
	}
	fabric, err := newSockets(s)
	if err != nil {
		s.closeAll()
		own.close()
		return nil, fmt.Errorf("connect ranks: %w", err)
	}
	return fabric, nil
}

// MissingError names the ranks that were not met.
type MissingError struct {
	Rank, Size int // who waited, and among how many
	Missing    []int
	Reasons    []string // for each of Missing, what is known of it
	Err        error    // why the waiting ended
}

// maxNamed is how many ranks an error names one by one.
const maxNamed = 8

func (e *MissingError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d of %d did not meet ", e.Rank, e.Size)
	for i, rank := range e.Missing {
		if i == maxNamed {
			fmt.Fprintf(&b, "; and %d more", len(e.Missing)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "rank %d (%s)", rank, e.Reasons[i])
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// Unwrap returns Err.
func (e *MissingError) Unwrap() error { return e.Err }

// meeting is what a rank knows while it meets the others.
type meeting struct {
	cfg     Config
	bell    *bell
	machine string
	nonce   nonce
	key     auth.Secret   // of the connections that this rank accepts
	done    chan struct{} // closed when nobody is missing

	mu      sync.Mutex
	seats   []*seat  // by rank; nil where nobody is, and of this rank itself
	reasons []string // by rank: why it is not here yet
	missing int
}

// meet returns the meeting when everybody is there.
func meet(ctx context.Context, cfg Config, own *bell) (*meeting, error) {
	s := &meeting{
		cfg: cfg, bell: own, machine: machineID(), done: make(chan struct{}), missing: cfg.Size - 1,
		seats: make([]*seat, cfg.Size), reasons: make([]string, cfg.Size),
	}
	rand.Read(s.nonce[:]) // never fails
	if s.missing == 0 {
		return s, nil
	}
	ticket, err := auth.NewSecret()
	if err != nil {
		return nil, err
	}
	s.key = cfg.key(ticket)
	l, err := cfg.listen(ctx, s.machine, ticket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { s.accept(ctx, l) })
	for rank := range cfg.Rank {
		tasks.Go(func() {
			if err := s.dial(ctx, rank); err != nil {
				cancel(err)
			}
		})
	}
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	err = context.Cause(ctx)
	cancel(nil)
	l.Close()
	tasks.Wait()
	if s.missing == 0 {
		return s, nil
	}
	s.closeAll()
	return nil, s.absent(err)
}

// absent is the error of a meeting that ended for the given cause.
func (s *meeting) absent(cause error) error {
	e := &MissingError{Rank: s.cfg.Rank, Size: s.cfg.Size, Err: cause}
	for rank, st := range s.seats {
		reason := cmp.Or(s.reasons[rank], "it has not connected")
		if st != nil {
			reason = st.absent()
		}
		if rank == s.cfg.Rank || reason == "" {
			continue
		}
		e.Missing, e.Reasons = append(e.Missing, rank), append(e.Reasons, reason)
	}
	return e
}

func (s *meeting) note(rank int, format string, args ...any) {
	s.mu.Lock()
	s.reasons[rank] = fmt.Sprintf(format, args...)
	s.mu.Unlock()
}

// closeAll closes what all seats have.
func (s *meeting) closeAll() {
	for _, st := range s.seats {
		if st != nil {
			st.close()
		}
	}
}

// near counts the other ranks on this machine.
func (s *meeting) near() int {
	n := 0
	for _, st := range s.seats {
		if st != nil && st.near {
			n++
		}
	}
	return n
}

// errRefused is what no other try mends: the other rank, which has proved that it is one, does not take this one.
var errRefused = errors.New("refused")

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
