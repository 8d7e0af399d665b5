package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"ddpbatch/internal/auth"
)

// DialConfig says where a store may be, and what to prove to it.
type DialConfig struct {
	// Addrs ("host:port") are tried in turn, again and again, until one proves that it
	// knows the secret or ctx ends.
	Addrs   []string
	Secret  auth.Secret
	Binding auth.Binding
	Name    string       // who this client is, for the server's Joined and Left; at most auth.MaxHello bytes
	Log     *slog.Logger // nil: nothing is logged
}

// Dial connects to the first of several addresses where this run's store
// answers. What is not there yet is tried again until ctx ends, and so is an
// address where somebody else answers: the store may have its port later. The
// error is then a *DialError.
func Dial(ctx context.Context, cfg DialConfig) (*Client, error) {
	switch {
	case len(cfg.Addrs) == 0:
		return nil, errors.New("connect to the store: no address is given")
	case cfg.Secret.IsZero():
		return nil, fmt.Errorf("connect to the store: %w", auth.ErrNoSecret)
	case len(cfg.Name) > auth.MaxHello:
		return nil, fmt.Errorf("connect to the store: the client's name has %d bytes, more than %d", len(cfg.Name), auth.MaxHello)
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	failed := &DialError{Addrs: cfg.Addrs, Reasons: make([]error, len(cfg.Addrs))}
	resting := make([]time.Time, len(cfg.Addrs)) // until when an address that somebody else holds is left alone
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		for i, addr := range cfg.Addrs {
			if time.Now().Before(resting[i]) {
				continue
			}
			conn, err := dial(ctx, addr, &cfg)
			if err == nil {
				return newClient(conn), nil
			}
			failed.Tries++
			level := slog.LevelInfo
			if strange(err) {
				resting[i], level = time.Now().Add(strangerRetry), slog.LevelWarn
			}
			if before := failed.Reasons[i]; ctx.Err() == nil || before == nil {
				failed.Reasons[i] = err
				if before == nil || before.Error() != err.Error() {
					log.Log(ctx, level, "store: not reached yet", "addr", addr, "err", err)
				}
			}
			if failed.Err = ctx.Err(); failed.Err != nil {
				return nil, failed
			}
		}
		select {
		// Between a half and the whole pause, so that ranks that began together do not go on together.
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			failed.Err = ctx.Err()
			return nil, failed
		}
	}
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

// DialError says why no store was reached by the end of the context. It
// matches the context's error and the last reason of each address.
type DialError struct {
	Addrs   []string
	Reasons []error // the last one of each address; nil where there was no time to try it
	Tries   int
	Err     error // the context's error
}

func (e *DialError) Error() string {
	text := make([]string, len(e.Addrs))
	for i, addr := range e.Addrs {
		text[i] = addr + ": " + reason(e.Reasons[i])
	}
	return fmt.Sprintf("connect to the store: %v after %d tries: %s", e.Err, e.Tries, strings.Join(text, "; "))
}

// Unwrap gives the context's error and the reasons.
func (e *DialError) Unwrap() []error {
	errs := []error{e.Err}
	for _, err := range e.Reasons {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// reason is an error in one line, without the address where net tells it again.
func reason(err error) string {
	var op *net.OpError
	switch {
	case err == nil:
		return "not tried"
	case errors.As(err, &op) && op.Op == "dial":
		err = op.Err
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}
