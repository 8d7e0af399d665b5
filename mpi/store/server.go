package store

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/secure"
)

// ServerConfig says whom a Server serves, and whom it tells.
type ServerConfig struct {
	// Secret and Binding are what clients must prove.
	Secret  auth.Secret
	Binding auth.Binding

	// Joined and Left, where set, are called with a client's name when its
	// connection has proved that it knows the secret, and when it has ended; local is the
	// address of this machine that the client reached. They are called one at a
	// time, in the order of the events, and hold up nobody but each other and
	// Close, which waits for the last of them: they must not call it. Names are the
	// clients' own choice; one that connects twice has joined twice.
	Joined func(name string, local net.Addr)
	Left   func(name string)

	// Torch has the server speak the TCPStore wire of PyTorch, too, on the same listener: the form of 1.13, and that
	// of 2.2 and later with the queues of 2.8. That wire knows no proof: whoever reaches the listener reads and writes
	// what is below TorchPrefix. Give it a listener on the job's interface, never on all.
	Torch bool

	// TorchPrefix is put before every key of a PyTorch client, which then sees no other keys. "": it sees all.
	TorchPrefix string

	Log *slog.Logger // nil: nothing is logged
}

// Server serves a store on a listener, until Close. It is itself a Store: the
// process that runs it uses it without a connection.
type Server struct {
	*memory
	cfg      ServerConfig
	log      *slog.Logger
	listener net.Listener

	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	accepting sync.WaitGroup // and every connection
	calls     *callQueue
	closeOnce sync.Once
}

// Serve begins to serve an empty store on l, which is then the Server's.
// Connections that do not prove that they know the secret within auth.Timeout
// are closed and logged; they hold up nobody.
func Serve(l net.Listener, cfg ServerConfig) *Server {
	s := &Server{memory: newMemory(), cfg: cfg, log: cfg.Log, listener: l, calls: newCallQueue()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	gate := &auth.Gate{Binding: cfg.Binding, Room: MaxHandshakes, Log: s.log, Open: opener(cfg)}
	if cfg.Torch {
		mux := newTorchMux(s.ctx, l, s.memory, &cfg, s.log)
		s.accepting.Go(mux.tasks.Wait)
		if onAllInterfaces(l.Addr()) {
			s.log.Warn("store: every machine that reaches this one may read and change the store by PyTorch's wire; bind it to one interface",
				"addr", l.Addr().String())
		}
		l = mux
	}
	s.accepting.Go(func() {
		gate.Serve(s.ctx, l, func(conn net.Conn, hello []byte) error { return s.serve(conn, string(hello)) })
	})
	return s
}

// opener is what the gate has clients go through. Its keys are made once.
func opener(cfg ServerConfig) func(context.Context, net.Conn) (net.Conn, []byte, error) {
	keys, err := secure.NewServer(cfg.Secret, cfg.Binding)
	return func(ctx context.Context, conn net.Conn) (net.Conn, []byte, error) {
		if err != nil {
			return nil, nil, err
		}
		if err := tune(conn); err != nil {
			return nil, nil, err
		}
		return keys.Open(ctx, conn)
	}
}

// onAllInterfaces tells whether a listener is on all interfaces.
func onAllInterfaces(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsUnspecified()
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening, ends every connection and every wait, and returns
// when Left has been called for the last client and no goroutine is left.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.cancel()
		s.listener.Close()
		s.memory.Close()
		s.accepting.Wait()
		s.calls.close()
	})
	return nil
}

// serve serves a connection that has proved itself; name is the client's.
func (s *Server) serve(conn net.Conn, name string) error {
	defer conn.Close()
	log := s.log.With("client", name, "remote", conn.RemoteAddr().String())
	log.Debug("store: client joined")
	if s.cfg.Joined != nil {
		local := conn.LocalAddr()
		s.calls.add(func() { s.cfg.Joined(name, local) })
	}
	err := newSession(s.ctx, s.memory, conn).serve()
	switch {
	case errors.Is(err, errMalformed):
		log.Warn("store: client dropped", "err", err)
	default:
		log.Debug("store: client left", "err", err)
	}
	if s.cfg.Left != nil {
		s.calls.add(func() { s.cfg.Left(name) })
	}
	return nil
}

// callQueue calls functions one at a time, in the order in which they were
// added, on a goroutine of its own.
type callQueue struct {
	mu      sync.Mutex
	added   sync.Cond
	waiting []func()
	closed  bool
	done    chan struct{}
}

func newCallQueue() *callQueue {
	q := &callQueue{done: make(chan struct{})}
	q.added.L = &q.mu
	go q.run()
	return q
}

func (q *callQueue) add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, f)
	q.added.Signal()
}

// close returns when all that was added has been called.
func (q *callQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.added.Signal()
	q.mu.Unlock()
	<-q.done
}

func (q *callQueue) run() {
	defer close(q.done)
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.waiting) == 0 {
			if q.closed {
				return
			}
			q.added.Wait()
		}
		f := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		f()
		q.mu.Lock()
	}
}
