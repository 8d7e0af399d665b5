package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/backoff"
	"ddpbatch/internal/pause"
	"ddpbatch/internal/secure"
)

const (
	connectTimeout = 5 * time.Second        // for TCP to reach one address
	firstRetry     = 10 * time.Millisecond  // the first pause before an address is tried again
	lastRetry      = 250 * time.Millisecond // pauses grow up to this
	unprovedRetry  = 2 * time.Second        // the pause after another program answered
)

// LastRefusal is the number of refusals in a row, some seconds apart, after which the refusal of another run's store at the only
// known address is final. Before that, the other run may be about to end.
const LastRefusal = 3

// DialConfig configures how to connect to a store.
type DialConfig struct {
	Secret  Secret
	Binding Binding
	Name    string       // this client's name, for the server's Joined and Left; at most MaxName bytes
	Log     *slog.Logger // nil: nothing is logged

	// Handshake bounds how long the other side may take to prove itself, in one try; 0: HandshakeTimeout.
	Handshake time.Duration
}

// Dial connects to this run's store at addr ("host:port"). It tries again until ctx ends if nothing listens there yet, or if
// another kind of program answers: the store may get its port later. The refusal of this run's own store ([ErrOtherSecret]) is
// final. The refusal of another run's store is final if that is still there after some seconds. The error is then a *DialError.
func Dial(ctx context.Context, addr string, cfg DialConfig) (*Client, error) {
	keys, err := cfg.check()
	if err != nil {
		return nil, err
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	d := &dialing{addr: addr, cfg: &cfg, keys: keys}
	conn := d.run(ctx)
	if conn == nil {
		return nil, &DialError{Addr: addr, Reason: d.reason, Tries: d.tries, Err: ctx.Err()}
	}
	return newClient(conn), nil
}

// Connect makes one attempt at one address, for callers that choose among several. It does not use cfg.Log.
func Connect(ctx context.Context, addr string, cfg DialConfig) (*Client, error) {
	keys, err := cfg.check()
	if err != nil {
		return nil, err
	}
	conn, err := dialOnce(ctx, addr, &cfg, keys)
	if err != nil {
		return nil, err
	}
	return newClient(conn), nil
}

// check checks the configuration and makes the keys for it.
func (c *DialConfig) check() (*secure.Client, error) {
	if len(c.Name) > MaxName {
		return nil, fmt.Errorf("connect to the store: the client's name has %d bytes, more than %d", len(c.Name), MaxName)
	}
	keys, err := secure.NewClient(c.Secret, c.Binding)
	if err != nil {
		return nil, fmt.Errorf("connect to the store: %w", err)
	}
	return keys, nil
}

// dialing is a call of Dial.
type dialing struct {
	addr     string
	cfg      *DialConfig
	keys     *secure.Client
	reason   error // of the last try
	tries    int
	refusals int // in a row
}

// run tries until a peer proves to be the store. It returns nil if a refusal is final, or ctx ends.
func (d *dialing) run(ctx context.Context) net.Conn {
	for again := (backoff.Backoff{First: firstRetry, Most: lastRetry}); ctx.Err() == nil; {
		conn, err := dialOnce(ctx, d.addr, d.cfg, d.keys)
		if err == nil {
			return conn
		}
		d.noteFailure(ctx, err)
		if d.isFinal(err) {
			return nil
		}
		wait := again.Next()
		if Unproved(err) {
			wait = unprovedRetry
		}
		_ = pause.For(ctx, wait) // the loop ends with ctx
	}
	return nil
}

// isFinal reports whether further tries are of no use. Another run's store may be about to end.
func (d *dialing) isFinal(err error) bool {
	if !errors.Is(err, ErrRefused) {
		d.refusals = 0
		return false
	}
	d.refusals++
	return d.refusals == LastRefusal || errors.Is(err, ErrOtherSecret)
}

// noteFailure records why a try failed, and logs it if that is new. If the end of ctx cut a try short, the one before says more.
func (d *dialing) noteFailure(ctx context.Context, err error) {
	d.tries++
	before := d.reason
	if before != nil && ctx.Err() != nil {
		return
	}
	d.reason = err
	if ctx.Err() != nil || before != nil && before.Error() == err.Error() {
		return
	}
	level := slog.LevelInfo
	if Unproved(err) {
		level = slog.LevelWarn
	}
	d.cfg.Log.Log(ctx, level, "store: not reached yet", "addr", d.addr, "err", err)
}

// Unproved reports whether a peer answered that has not proved to be of this run. Most likely it is another job, or the same run
// with another secret, which a person must learn.
func Unproved(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, auth.ErrUnproved) || errors.Is(err, auth.ErrProtocol)
}

// dialOnce makes one attempt at one address.
func dialOnce(ctx context.Context, addr string, cfg *DialConfig, keys *secure.Client) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			<-ctx.Done() // as in handshake; err may be the system's time-out
			if !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", err, ctx.Err())
			}
		}
		return nil, err
	}
	opened, err := handshake(ctx, conn, cfg, keys)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return opened, nil
}

func handshake(ctx context.Context, conn net.Conn, cfg *DialConfig, keys *secure.Client) (net.Conn, error) {
	if err := tune(conn); err != nil {
		return nil, err
	}
	limit := cmp.Or(cfg.Handshake, HandshakeTimeout)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	opened, err := keys.Open(limited, conn, cfg.Name)
	switch {
	case errors.Is(err, auth.ErrUnproved): // its digest says that it is this run's
		return nil, ErrOtherSecret
	case errors.Is(err, context.DeadlineExceeded) && endsSooner(limited, ctx):
		return nil, fmt.Errorf("%w within %v", ErrSilent, limit)
	case errors.Is(err, context.DeadlineExceeded):
		// the connection's clock may be a moment ahead; the error must show that the caller's own time is over
		<-ctx.Done()
	}
	return opened, err
}

// endsSooner reports whether a context has its own deadline, and not its parent's.
func endsSooner(limited, parent context.Context) bool {
	own, _ := limited.Deadline()
	given, _ := parent.Deadline()
	return !own.Equal(given)
}

// DialError is the reason why the store was not reached. It matches the context's error and the reason.
type DialError struct {
	Addr   string
	Reason error // of the last try; nil if there was no time for one
	Tries  int
	Err    error // the context's error; nil if the reason was final
}

func (e *DialError) Error() string {
	why := "refused"
	if e.Err != nil {
		why = e.Err.Error()
	}
	return fmt.Sprintf("connect to the store: %s after %d tries: %s: %s", why, e.Tries, e.Addr, oneLine(e.Reason))
}

// Unwrap returns the context's error and the reason.
func (e *DialError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Err, e.Reason}, func(err error) bool { return err == nil })
}

// oneLine formats an error in one line, without the address that package net adds.
func oneLine(err error) string {
	var op *net.OpError
	switch {
	case err == nil:
		return "not tried"
	case errors.As(err, &op) && op.Op == "dial":
		err = op.Err
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// keepAlive and userTimeout make a connection whose other end is gone without notice fail within about 20 seconds: while it is
// idle, by three keep-alive probes without an answer (tcp(7): TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT); while data is being sent,
// by TCP_USER_TIMEOUT (RFC 5482).
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

const userTimeout = 20 * time.Second

// tune sets both on a TCP connection. It leaves other connections as they are.
func tune(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.SetKeepAliveConfig(keepAlive); err != nil {
		return fmt.Errorf("set keep-alive: %w", err)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("set the user timeout: %w", err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	if err == nil {
		err = setErr
	}
	if err != nil {
		return fmt.Errorf("set the user timeout: %w", err)
	}
	return nil
}
