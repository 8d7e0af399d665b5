package launch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/store"
)

// Keys of the agents in the run's control store, below their own prefix. Those of a round (round.go) are below its number.
const (
	prefix   = "launch"
	keyJoin  = "join/%s" // join, by an agent's nonce
	keySeat  = "seat/%s" // seat, by agent 0
	keyBeat  = "beat/%s" // a number that grows as long as the agent lives
	keyOut   = "out/%s"  // why agent 0 goes on without the agent
	keyPlan  = "plan/%d" // plan, by round, by agent 0
	keyWarn  = "warn"    // warning, by whoever comes first
	keyRound = "round/%d"
)

// meeting is an agent's connection to the others, for the whole run: the control store itself at agent 0, a client
// of it elsewhere.
type meeting struct {
	cfg    AgentConfig // with the agent's number
	nonce  string
	store  store.Store
	closer func() error
	network
	listen  string         // where this agent's workers can be reached
	reached string         // the address by which agent 0 was reached, from this node; "": nobody had to
	logDir  *output.LogDir // nil: --log-dir is not given
	keeper  *keeper
	first   *plan // of the first round that this agent has a part in

	// At agent 0 only.
	fresh    bool // the run's secret was made here
	roster   *roster
	services services
	ports    map[int]bool              // that were a MASTER_PORT
	claim    io.Closer                 // of the MASTER_PORT that was given; nil: none was
	stood    atomic.Pointer[time.Time] // when this process ran again, which had not run for so long that the others gave it up; nil: never

	moved atomic.Pointer[time.Time] // when the job ends; zero: never; nil: as the configuration says
	led   atomic.Int64              // a time.Duration, at agent 0: how long before the job's end it warns; 0: no end is known

	ctx    context.Context // of the tasks; ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	warned  chan struct{} // closed when the run was warned
	warning warning       // read after warned

	mu     sync.Mutex
	silent string // why this agent has given agent 0 up, though the connection lived
}

// meet brings the agents of the run together. An error is what all of them get, where agent 0 could still tell
// them. own gets the number 0 where this agent turns out to be agent 0.
func meet(ctx context.Context, own *AgentConfig) (*meeting, error) {
	c := *own
	c.id = newNonce()
	n, err := c.network()
	c.Declines = cmp.Or(c.Declines, err)
	var l net.Listener
	var claim io.Closer
	switch {
	case c.Declines != nil, c.Guest:
	case c.Index < 0 && c.Count > 1:
		c.joinBy = c.joinEnd()
		switch l, err = c.claimEndpoint(ctx, n); {
		case errors.Is(err, syscall.EADDRINUSE): // by agent 0, as a rule
			c.portTaken = true
		case err != nil:
			return nil, err
		case l != nil:
			c.Index, own.Index = 0, 0
		}
	case c.Index <= 0:
		c.Index, own.Index = 0, 0
		if claim, c.Declines = c.claimMasterPort(); c.Declines == nil {
			l, c.Declines = c.listen(n)
		}
	}
	var m *meeting
	switch {
	case c.Declines != nil:
		err = c.decline(ctx)
	case l != nil:
		m, err = host(ctx, c, n, l)
	default:
		m, err = visit(ctx, c, n)
	}
	switch {
	case claim != nil && err != nil:
		err = errors.Join(err, claim.Close())
	case claim != nil:
		m.claim = claim
	}
	return m, err
}

func newMeeting(ctx context.Context, c AgentConfig, n network) *meeting {
	m := &meeting{cfg: c, network: n, nonce: newNonce(), keeper: &keeper{}, warned: make(chan struct{}), ports: make(map[int]bool)}
	// What agents say to each other outlives the signal that ends the run.
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return m
}

// close ends this agent's part; it returns when nothing of it runs any more.
func (m *meeting) close() error {
	m.cancel()
	err := errors.Join(m.services.close(), m.closer())
	if m.claim != nil {
		err = errors.Join(err, m.claim.Close())
	}
	m.tasks.Wait()
	return err
}

// binding is what agents prove to each other.
func (c AgentConfig) binding() auth.Binding {
	return auth.Binding{Run: c.RunID, Attempt: c.Attempt, Role: "agents"}
}

// workerBinding is what ddpbatch's own workers prove to their store (package mpi).
func (c AgentConfig) workerBinding(attempt int) auth.Binding {
	return auth.Binding{Run: c.RunID, Attempt: attempt, Role: "store"}
}

// newNonce names one connection, and keeps it apart from all others.
func newNonce() string {
	var nonce [8]byte
	rand.Read(nonce[:]) // never returns an error (crypto/rand)
	return hex.EncodeToString(nonce[:])
}

func isNonce(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 8
}

func hostOnly(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return loopback
	}
	return host
}

func setJSON(ctx context.Context, s store.Store, key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.Set(ctx, key, text)
}

func getJSON[T any](ctx context.Context, s store.Store, key string) (v T, err error) {
	text, err := s.Get(ctx, key)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fmt.Errorf("read what another agent said in %s: %w", key, err)
	}
	return v, nil
}
