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

// Connect connects to the other ranks, and returns when this rank is connected to each of them. It tries until ctx ends, or until a rank
// refuses this one because its world has another size or because it is connected to another process with this rank. The error is then a
// MissingError.
func Connect(ctx context.Context, cfg Config) (*Sockets, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("connect ranks: %w", err)
	}
	pipe, err := newWakePipe()
	if err != nil {
		return nil, fmt.Errorf("connect ranks: %w", err)
	}
	c, err := connectAll(ctx, cfg, pipe)
	if err != nil {
		pipe.close()
		return nil, fmt.Errorf("connect ranks: %w", err)
	}
	rdma, err := c.setUpRDMA(ctx)
	if err != nil {
		c.closeAll()
		pipe.close()
		return nil, fmt.Errorf("connect ranks: %w", err)
	}
	fabric, err := newSockets(c, rdma)
	if err != nil {
		c.closeAll()
		pipe.close()
		return nil, fmt.Errorf("connect ranks: %w", err)
	}
	return fabric, nil
}

// MissingError names the ranks that are not connected.
type MissingError struct {
	Rank, Size int // the rank that waited, and the size of its world
	Missing    []int
	Reasons    []string // why each rank of Missing is not connected, as far as is known
	Err        error    // why the wait ended
}

// maxNamed is the largest number of ranks that an error names individually.
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

// connector is a rank's state while it connects to the others.
type connector struct {
	cfg     Config
	pipe    *wakePipe
	machine string
	nonce   nonce
	key     auth.Secret   // for the connections that this rank accepts
	done    chan struct{} // closed when no rank is missing

	mu      sync.Mutex
	remotes []*remoteRank // by rank; nil for ranks that are missing, and for this rank
	reasons []string      // by rank: why it is not connected yet
	missing int
}

// connectAll returns when all ranks are connected.
func connectAll(ctx context.Context, cfg Config, pipe *wakePipe) (*connector, error) {
	c := &connector{
		cfg: cfg, pipe: pipe, machine: machineID(), done: make(chan struct{}), missing: cfg.Size - 1,
		remotes: make([]*remoteRank, cfg.Size), reasons: make([]string, cfg.Size),
	}
	rand.Read(c.nonce[:]) // never fails
	if c.missing == 0 {
		return c, nil
	}
	ticket := auth.NewSecret()
	c.key = cfg.key(ticket)
	l, err := cfg.listen(ctx, c.machine, ticket)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { c.accept(ctx, l) })
	for rank := range cfg.Rank {
		tasks.Go(func() {
			if err := c.dialRank(ctx, rank); err != nil {
				cancel(err)
			}
		})
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	err = context.Cause(ctx)
	cancel(nil)
	l.Close()
	tasks.Wait()
	if c.missing == 0 {
		return c, nil
	}
	c.closeAll()
	return nil, c.missingError(err)
}

// missingError returns the error for missing ranks when cause has ended the wait.
func (c *connector) missingError(cause error) error {
	e := &MissingError{Rank: c.cfg.Rank, Size: c.cfg.Size, Err: cause}
	for rank, r := range c.remotes {
		reason := cmp.Or(c.reasons[rank], "it has not connected")
		if r != nil {
			reason = r.missingPart()
		}
		if rank == c.cfg.Rank || reason == "" {
			continue
		}
		e.Missing, e.Reasons = append(e.Missing, rank), append(e.Reasons, reason)
	}
	return e
}

func (c *connector) setReason(rank int, format string, args ...any) {
	c.mu.Lock()
	c.reasons[rank] = fmt.Sprintf(format, args...)
	c.mu.Unlock()
}

// closeAll closes all connections and memory.
func (c *connector) closeAll() {
	for _, r := range c.remotes {
		if r != nil {
			r.close()
		}
	}
}

// countLocal counts the other ranks on this machine.
func (c *connector) countLocal() int {
	n := 0
	for _, r := range c.remotes {
		if r != nil && r.local {
			n++
		}
	}
	return n
}

// errRefused is the error of a rank that has proved itself but does not accept this one. Trying again does not help.
var errRefused = errors.New("refused")

// remoteRank is the connector's state of one other rank. It belongs to one process and to one of its tries.
type remoteRank struct {
	rank        int
	nonce       nonce
	try         uint32
	local       bool          // the rank is on this machine, whether or not they share memory
	controlDone chan struct{} // closed when control is set, or never will be
	control     *sealedConn   // nil until the dialing rank has confirmed it
	memory      *pairMemory   // nil if the ranks do not share memory
	streams     []*sealedConn // of the data link, if the ranks do not share memory; nil for those that are not connected yet
}

// missingPart says what is missing of the rank. If nothing is missing, it returns "".
func (r *remoteRank) missingPart() string {
	if r.control == nil {
		return "it has connected, but has not confirmed the welcome"
	}
	there := 0
	for _, conn := range r.streams {
		if conn != nil {
			there++
		}
	}
	if there < len(r.streams) {
		return fmt.Sprintf("%d of its %d data streams are connected", there, len(r.streams))
	}
	return ""
}

func (r *remoteRank) complete() bool { return r.missingPart() == "" }

func (r *remoteRank) close() {
	for _, conn := range slices.Concat(r.streams, []*sealedConn{r.control}) {
		if conn != nil {
			conn.Close()
		}
	}
	if r.memory != nil {
		r.memory.close()
	}
}

// addRank adds a rank that this one has dialed.
func (c *connector) addRank(r *remoteRank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remotes[r.rank] = r
	c.countIfComplete(r)
}

// countIfComplete counts the rank as connected if nothing of it is missing. mu is held.
func (c *connector) countIfComplete(r *remoteRank) {
	if !r.complete() {
		return
	}
	if c.missing--; c.missing == 0 {
		close(c.done)
	}
}

// drop removes a rank whose control connection has broken.
func (c *connector) drop(r *remoteRank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.remotes[r.rank] == r {
		c.remove(r)
	}
}

// remove closes everything of a rank and removes it. mu is held.
func (c *connector) remove(r *remoteRank) {
	if r.complete() {
		c.missing++
	}
	if r.control == nil {
		close(r.controlDone)
	}
	c.remotes[r.rank] = nil
	r.close()
}

// errStale ends a connection of a try that has ended. The next try may succeed.
var errStale = errors.New("nobody waits for this connection")
