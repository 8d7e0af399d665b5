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

// ServerConfig configures which clients a Server serves, and how it reports them.
type ServerConfig struct {
	// Secret and Binding are what clients must prove.
	Secret  Secret
	Binding Binding

	// Joined and Left, if set, are called with a client's name when its connection has proved that it knows the secret, and when
	// the connection has ended. local is the address of this machine that the client reached. They are called one at a time: a slow
	// call delays all clients that join or leave meanwhile. Close waits for the last call, so they must not call Close. Clients
	// choose their names themselves; a client that connects twice joins twice.
	Joined func(name string, local net.Addr)
	Left   func(name string)

	// Torch makes the server serve PyTorch's TCPStore clients, too, on the same listener: those of 1.13, and those of 2.2 and
	// later, with the queues of 2.8. Their protocol has no means of proof: anyone who reaches the listener can read and write the
	// keys below TorchPrefix. Give it a listener on the job's interface, never on all interfaces.
	Torch bool

	// TorchPrefix is prepended to every key of a PyTorch client, which then sees no other keys. "": it sees all keys.
	TorchPrefix string

	Log *slog.Logger // nil: nothing is logged
}

// Server serves a store on listeners, until Close. It is itself a Store: the process that runs it uses it without a connection.
type Server struct {
	*memory
	cfg       ServerConfig
	log       *slog.Logger
	listeners []net.Listener

	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	accepting sync.WaitGroup // also waits for every connection
	notifying sync.Mutex     // held while Joined or Left is called
	closeOnce sync.Once
}

// Serve begins to serve an empty store on l, which then belongs to the Server. Connections that do not prove within
// HandshakeTimeout that they know the secret are closed and logged. They do not delay others.
func Serve(l net.Listener, cfg ServerConfig) *Server { return ServeAll([]net.Listener{l}, cfg) }

// ServeAll is Serve on several listeners, such as one for each network of a machine. The limits for PyTorch's clients hold for each one.
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

// multiplex serves PyTorch's clients of a listener, and returns a listener for all others.
func (s *Server) multiplex(l net.Listener) net.Listener {
	mux := newTorchMux(s.ctx, l, s.memory, &s.cfg, s.log)
	s.accepting.Go(mux.tasks.Wait)
	if onAllInterfaces(l.Addr()) {
		s.log.Warn("store: every machine that reaches this one can read and change the store as PyTorch does; bind it to one interface",
			"addr", l.Addr().String())
	}
	return mux
}

// opener returns the gate's handshake with clients. It makes the keys once.
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

// onAllInterfaces reports whether a listener is on all interfaces.
func onAllInterfaces(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsUnspecified()
}

// Addr is the address on which the server listens, or the first of several.
func (s *Server) Addr() net.Addr { return s.listeners[0].Addr() }

// Close stops listening and ends every connection and every wait. It returns when Left has been called for the last client, and all
// goroutines have ended.
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

// serve serves a connection that has proved itself. name is the client's name.
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
