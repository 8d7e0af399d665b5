package store

import (
	"cmp"
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
	Secret  Secret
	Binding Binding

	// Joined and Left, where set, are called with a client's name when its
	// connection has proved that it knows the secret, and when it has ended; local is the
	// address of this machine that the client reached. They are called one at a
	// time: a slow one holds up every client that joins or leaves meanwhile. Close waits for the last of them: they must not
	// call it. Names are the clients' own choice; one that connects twice has joined twice.
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
	cfg       ServerConfig
	log       *slog.Logger
	listeners []net.Listener

	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	accepting sync.WaitGroup // and every connection
	notifying sync.Mutex     // held while Joined or Left is called
	closeOnce sync.Once
}

// Serve begins to serve an empty store on l, which is then the Server's.
// Connections that do not prove that they know the secret within
// HandshakeTimeout are closed and logged; they hold up nobody.
func Serve(l net.Listener, cfg ServerConfig) *Server { return ServeAll([]net.Listener{l}, cfg) }

// ServeAll is Serve on several listeners, such as one for each of a machine's networks. PyTorch's clients have on each what they may take.
func ServeAll(listeners []net.Listener, cfg ServerConfig) *Server {
	s := &Server{memory: newMemory(), cfg: cfg, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), listeners: listeners}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	gate := &auth.Gate{Role: cfg.Binding.Role, Room: MaxHandshakes, Log: s.log, Open: opener(cfg)}
	for _, l := range listeners {
		if cfg.Torch {
			l = s.multiplex(l)
		}
		s.accepting.Go(func() {
			gate.Serve(s.ctx, l, func(conn net.Conn, hello []byte) error { return s.serve(conn, string(hello)) })
		})
	}
	return s
}

// multiplex serves PyTorch's clients of a listener, and returns the listener of all others.
func (s *Server) multiplex(l net.Listener) net.Listener {
	mux := newTorchMux(s.ctx, l, s.memory, &s.cfg, s.log)
	s.accepting.Go(mux.tasks.Wait)
	if onAllInterfaces(l.Addr()) {
		s.log.Warn("store: every machine that reaches this one may read and change the store by PyTorch's wire; bind it to one interface",
			"addr", l.Addr().String())
	}
	return mux
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

// Addr is the address that the server listens on, the first of several.
func (s *Server) Addr() net.Addr { return s.listeners[0].Addr() }

// Close stops listening, ends every connection and every wait, and returns
// when Left has been called for the last client and no goroutine is left.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.cancel()
		for _, l := range s.listeners {
			l.Close()
		}
		s.memory.Close()
		s.accepting.Wait()
	})
	return nil
}

// serve serves a connection that has proved itself; name is the client's.
func (s *Server) serve(conn net.Conn, name string) error {
	defer conn.Close()
	log := s.log.With("client", name, "remote", conn.RemoteAddr().String())
	if s.cfg.Joined != nil {
		s.notifying.Lock()
		s.cfg.Joined(name, conn.LocalAddr())
		s.notifying.Unlock()
	}
	err := newSession(s.ctx, s.memory, conn).serve()
	if errors.Is(err, errMalformed) {
		log.Warn("store: client dropped", "err", err)
	} else {
		log.Debug("store: client left", "err", err)
	}
	if s.cfg.Left != nil {
		s.notifying.Lock()
		s.cfg.Left(name)
		s.notifying.Unlock()
	}
	return nil
}
