package store

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"ddpbatch/internal/auth"
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

	Log *slog.Logger // nil: nothing is logged
}

// Server serves a store on a listener, until Close. It is itself a Store: the
// process that runs it uses it without a connection.
type Server struct {
	*memory
	cfg      ServerConfig
	log      *slog.Logger
	listener net.Listener

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	tasks      sync.WaitGroup // accepting, and every connection
	handshakes handshakes
	refused    atomic.Int64 // connections that did not prove themselves
	calls      *callQueue
	closeOnce  sync.Once
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
	s.tasks.Go(s.accept)
	return s
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
		s.tasks.Wait()
		s.calls.close()
	})
	return nil
}

func (s *Server) accept() {
	const longest = time.Second
	pause := time.Duration(0)
	for {
		conn, err := s.listener.Accept()
		switch {
		case err == nil:
			pause = 0
			s.tasks.Go(func() { s.serve(conn) })
			continue
		case s.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		}
		// Out of file descriptors, say: connections that end give some back.
		pause = min(max(2*pause, 5*time.Millisecond), longest)
		s.log.Warn("store: accept a connection", "err", err, "retry_in", pause)
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
			return
		}
	}
}

// logRefusal tells of connections that did not prove themselves: of the first ones, and then of fewer and fewer, lest
// a flood of them fills the job's log.
func (s *Server) logRefusal(remote net.Addr, err error) {
	n := s.refused.Add(1)
	if s.ctx.Err() == nil && (n <= 16 || n&(n-1) == 0) {
		s.log.Warn("store: connection refused", "remote", remote.String(), "err", err, "so_far", n)
	}
}

// serve lets a connection prove itself, and then serves it.
func (s *Server) serve(conn net.Conn) {
	defer conn.Close()
	name, err := s.admit(conn)
	if err != nil {
		s.logRefusal(conn.RemoteAddr(), err)
		return
	}
	log := s.log.With("client", name, "remote", conn.RemoteAddr().String())
	log.Debug("store: client joined")
	if s.cfg.Joined != nil {
		local := conn.LocalAddr()
		s.calls.add(func() { s.cfg.Joined(name, local) })
	}
	err = newSession(s.ctx, s.memory, conn).serve()
	switch {
	case errors.Is(err, errMalformed):
		log.Warn("store: client dropped", "err", err)
	default:
		log.Debug("store: client left", "err", err)
	}
	if s.cfg.Left != nil {
		s.calls.add(func() { s.cfg.Left(name) })
	}
}

// admit returns the name of a client that knows the secret.
func (s *Server) admit(conn net.Conn) (name string, err error) {
	if err := tune(conn); err != nil {
		return "", err
	}
	h := s.handshakes.begin(conn)
	ctx, cancel := context.WithTimeout(s.ctx, auth.Timeout)
	defer cancel()
	hello, err := auth.Server(ctx, conn, s.cfg.Secret, s.cfg.Binding, nil)
	if s.handshakes.end(h) {
		return "", errCrowded
	}
	return string(hello), err
}
