package transport

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
