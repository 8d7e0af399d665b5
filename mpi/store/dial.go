package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"ddpbatch/internal/auth"
)

// DialConfig says where a store may be, and what to prove to it.
type DialConfig struct {
	// Addrs ("host:port") are tried side by side, each again and again, until one proves that it
	// knows the secret or ctx ends. They must not be two ways to one store: that may see this client twice.
	Addrs   []string
	Secret  auth.Secret
	Binding auth.Binding
	Name    string       // who this client is, for the server's Joined and Left; at most auth.MaxHello bytes
	Log     *slog.Logger // nil: nothing is logged
}

// Dial connects to the first of several addresses where this run's store
// answers; whoever else answers at another, or keeps silent there, holds up nothing. What is not
// there yet is tried again until ctx ends, and so is an address where somebody else answers: the
// store may have its port later. The error is then a *DialError.
func Dial(ctx context.Context, cfg DialConfig) (*Client, error) {
	switch {
	case len(cfg.Addrs) == 0:
		return nil, errors.New("connect to the store: no address is given")
	case cfg.Secret.IsZero():
		return nil, fmt.Errorf("connect to the store: %w", auth.ErrNoSecret)
	case len(cfg.Name) > auth.MaxHello:
		return nil, fmt.Errorf("connect to the store: the client's name has %d bytes, more than %d", len(cfg.Name), auth.MaxHello)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &search{cfg: &cfg, reasons: make([]error, len(cfg.Addrs))}
	if conn := s.race(ctx); conn != nil {
		return newClient(conn), nil
	}
	return nil, &DialError{Addrs: cfg.Addrs, Reasons: s.reasons, Tries: s.tries, Err: ctx.Err()}
}

// search is a Dial under way.
type search struct {
	cfg *DialConfig

	mu      sync.Mutex
	reasons []error // the last one of each address
	tries   int
}

// race returns the connection that first proved itself, nil where ctx ended before.
func (s *search) race(ctx context.Context) net.Conn {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	proved := make(chan net.Conn, len(s.cfg.Addrs))
	var tasks sync.WaitGroup
	for i := range s.cfg.Addrs {
		tasks.Go(func() {
			if conn := s.try(ctx, i); conn != nil {
				proved <- conn
				stop()
			}
		})
	}
	tasks.Wait()
	close(proved)
	first := <-proved
	for late := range proved {
		late.Close()
	}
	return first
}

// try dials one address until it proves itself or ctx ends.
func (s *search) try(ctx context.Context, i int) net.Conn {
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, lastRetry) {
		conn, err := dial(ctx, s.cfg.Addrs[i], s.cfg)
		if err == nil {
			return conn
		}
		s.note(ctx, i, err)
		// Between a half and the whole pause, so that ranks that began together do not go on together.
		rest := pause/2 + rand.N(pause/2)
		if strange(err) {
			rest = strangerRetry
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
		}
	}
	return nil
}

// note keeps why a try went wrong, and logs it where it is news. What the end of ctx cut short tells
// less than the try before.
func (s *search) note(ctx context.Context, i int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	before := s.reasons[i]
	// A connection's deadline is that of ctx, and may be over a moment sooner.
	if before != nil && (ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) && strange(before)) {
		return
	}
	s.reasons[i] = err
	if ctx.Err() != nil || before != nil && before.Error() == err.Error() {
		return
	}
	level := slog.LevelInfo
	if strange(err) {
		level = slog.LevelWarn
	}
	s.cfg.Log.Log(ctx, level, "store: not reached yet", "addr", s.cfg.Addrs[i], "err", err)
}

// strange tells whether somebody answered who does not belong to this run: another job, most likely, or
// the same run with another secret, which a person must hear of.
func strange(err error) bool {
	return errors.Is(err, auth.ErrRefused) || errors.Is(err, auth.ErrUnproved) || errors.Is(err, auth.ErrProtocol)
}

// dial makes one attempt at one address.
func dial(ctx context.Context, addr string, cfg *DialConfig) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := prove(ctx, conn, cfg); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func prove(ctx context.Context, conn net.Conn, cfg *DialConfig) error {
	if err := tune(conn); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, auth.Timeout)
	defer cancel()
	_, err := auth.Client(ctx, conn, cfg.Secret, cfg.Binding, []byte(cfg.Name))
	return err
}
