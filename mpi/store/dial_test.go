package store

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

// deadAddr returns a loopback address that refuses connections until the test listens there. A socket that does not listen is bound to it,
// and lets one that listens use it (socket(7), SO_REUSEADDR). The kernel does not choose the address for other sockets.
func deadAddr(t testing.TB) net.Addr {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, nameErr := unix.Getsockname(fd)
	if err := errors.Join(err, nameErr); err != nil {
		t.Fatal(err)
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}
}

func TestDialRefusesToBegin(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*DialConfig)
		want   string
	}{
		"no secret": {func(c *DialConfig) { c.Secret = auth.Secret{} }, "no secret"},
		"long name": {func(c *DialConfig) { c.Name = strings.Repeat("n", auth.MaxHello+1) }, "4097 bytes"},
	} {
		cfg := dialConfig()
		c.change(&cfg)
		if _, err := Dial(t.Context(), deadAddr(t).String(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDialWaitsForServer dials an address at which a server starts later.
func TestDialWaitsForServer(t *testing.T) {
	addr := deadAddr(t)
	var log testkit.Journal
	cfg := dialConfig()
	cfg.Log = log.Logger()
	dialled := make(chan error)
	go func() {
		c, err := Dial(bounded(t), addr.String(), cfg)
		if err == nil {
			err = c.Set(bounded(t), "k", nil)
			c.Close()
		}
		dialled <- err
	}()
	testkit.Eventually(t, "the first try fails", func() bool { return strings.Contains(log.String(), "connection refused") })
	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer Serve(l, ServerConfig{Secret: secret, Binding: binding}).Close()
	if err := <-dialled; err != nil {
		t.Error(err)
	}
}

// TestDialGivesUpOnAnotherRun dials another run's store, which refuses it for some seconds. The reason is logged once.
func TestDialGivesUpOnAnotherRun(t *testing.T) {
	t.Parallel() // it mostly waits
	var refusals, log testkit.Journal
	other := binding
	other.Attempt++
	otherRun := Serve(listen(t), ServerConfig{Secret: secret, Binding: other, Log: refusals.Logger()})
	defer otherRun.Close()
	cfg := dialConfig()
	cfg.Log = log.Logger()
	begun := time.Now()
	_, err := Dial(t.Context(), otherRun.Addr().String(), cfg)
	var failed *DialError
	if !errors.As(err, &failed) || failed.Tries != LastRefusal || failed.Err != nil || !errors.Is(err, auth.ErrRefused) ||
		errors.Is(err, ErrOtherSecret) {
		t.Errorf("error %v, want ErrRefused after %d tries", err, LastRefusal)
	}
	if took := time.Since(begun); took < (LastRefusal-1)*unprovedRetry {
		t.Errorf("another run's store had %v to end", took)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("the reason was logged %d times: %s", n, log.String())
	}
	if n := strings.Count(refusals.String(), "\n"); n != 1 {
		t.Errorf("the server told %d times of one host: %s", n, refusals.String())
	}
}

// If the run's own store refuses this side, Dial returns the error at once.
func TestDialWithAnotherSecretEndsAtOnce(t *testing.T) {
	cfg := dialConfig()
	cfg.Secret[0]++
	_, err := Dial(t.Context(), serve(t, ServerConfig{}).Addr().String(), cfg)
	var failed *DialError
	if !errors.As(err, &failed) || failed.Tries != 1 || !errors.Is(err, ErrOtherSecret) || !errors.Is(err, auth.ErrRefused) {
		t.Errorf("error %v, want ErrOtherSecret after one try", err)
	}
}

// stranger returns the address of a listener that answers like a web server.
func stranger(t testing.TB) net.Addr {
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			conn.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr()
}

// TestDialGivesTheReason checks the error if ctx ends before the store can be reached.
func TestDialGivesTheReason(t *testing.T) {
	web := stranger(t)
	for addr, want := range map[string]struct {
		err  error
		text string
	}{
		deadAddr(t).String(): {syscall.ECONNREFUSED, ": connect: connection refused"},
		web.String():         {auth.ErrProtocol, ": handshake: the peer is not a ddpbatch"},
		"host.invalid:1":     {context.Canceled, ": lookup host.invalid"}, // RFC 2606: this name never exists
	} {
		cfg := dialConfig()
		var log testkit.Journal
		cfg.Log = log.Logger()
		ctx, cancel := context.WithCancel(bounded(t))
		dialled := make(chan error)
		go func() {
			_, err := Dial(ctx, addr, cfg)
			dialled <- err
		}()
		testkit.Eventually(t, "it was tried", func() bool { return log.String() != "" })
		cancel()
		err := <-dialled
		var failed *DialError
		if !errors.As(err, &failed) || failed.Tries < 1 || !errors.Is(err, context.Canceled) || !errors.Is(err, want.err) {
			t.Errorf("%s: error %v, want a DialError after a try", addr, err)
		}
		if text := err.Error(); !strings.Contains(text, addr+want.text) || strings.Contains(text, "\n") {
			t.Errorf("%q is not in the one line %q", addr+want.text, text)
		}
	}
}

func TestDialWithAnEndedContextTriesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	addr := deadAddr(t).String()
	_, err := Dial(ctx, addr, dialConfig())
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), addr+": not tried") {
		t.Errorf("error %v", err)
	}
}

// TestConnectTriesOnce checks that Connect makes one attempt, and returns its error.
func TestConnectTriesOnce(t *testing.T) {
	s := serve(t, ServerConfig{})
	c, err := Connect(bounded(t), s.Addr().String(), dialConfig())
	if err != nil {
		t.Fatal(err)
	}
	if c.RemoteAddr().String() != s.Addr().String() {
		t.Errorf("reached %v at %v", s.Addr(), c.RemoteAddr())
	}
	c.Close()
	if _, err := Connect(bounded(t), deadAddr(t).String(), dialConfig()); !errors.Is(err, syscall.ECONNREFUSED) || Unproved(err) {
		t.Errorf("nobody listens: %v", err)
	}
	other := dialConfig()
	other.Secret[0]++
	if _, err := Connect(bounded(t), s.Addr().String(), other); !errors.Is(err, ErrOtherSecret) || !Unproved(err) {
		t.Errorf("another secret: %v", err)
	}
	other.Secret = auth.Secret{}
	if _, err := Connect(bounded(t), s.Addr().String(), other); !errors.Is(err, auth.ErrNoSecret) {
		t.Errorf("no secret: %v", err)
	}
}

// A peer that accepts a connection and stays silent causes the same error each time, if the try's own limit ends it and not the caller's
// context.
func TestSilentListenerIsReportedEachTime(t *testing.T) {
	l := listen(t) // connections stay in its queue
	defer l.Close()
	addr := l.Addr().String()
	cfg := dialConfig()
	cfg.Handshake = 20 * time.Millisecond
	for range 5 {
		_, err := Connect(bounded(t), addr, cfg)
		if !errors.Is(err, ErrSilent) || errors.Is(err, context.DeadlineExceeded) ||
			err.Error() != "the connection was accepted, and nothing was proved within 20ms" {
			t.Errorf("error %v", err)
		}
	}
	cfg.Handshake = testkit.Patience
	for i := range 100 {
		// The caller's time ends before the connection is made, or after it.
		ctx, cancel := context.WithTimeout(t.Context(), []time.Duration{time.Microsecond, time.Millisecond}[i%2])
		if _, err := Connect(ctx, addr, cfg); errors.Is(err, ErrSilent) || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("where the caller's time was over first: %v; the context: %v", err, ctx.Err())
		}
		cancel()
	}
}

// TestSocketsNoticeACutCable reads, with getsockopt(2), the options with which a cut cable shows within 20 seconds according to tcp(7).
func TestSocketsNoticeACutCable(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := connect(t, s)
	accepted := make(chan net.Conn, 1)
	l := listen(t)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			tune(conn)
		}
		accepted <- conn
	}()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far := <-accepted
	defer far.Close()

	for name, conn := range map[string]net.Conn{"dialled": c.conn.(*tls.Conn).NetConn(), "accepted": far} {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			for _, o := range []struct {
				name                string
				level, option, want int
			}{
				{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
				{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
				{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 5},
				{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
				{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 20_000},
				{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			} {
				if got, err := unix.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
					t.Errorf("%s, %s: %d, %v; want %d", name, o.name, got, err, o.want)
				}
			}
		})
	}
}
