package store

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

// deadAddr is a loopback address that refuses connections.
func deadAddr(t testing.TB) net.Addr {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr()
}

func TestDialRefusesToBegin(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*DialConfig)
		want   string
	}{
		"no address": {func(c *DialConfig) { c.Addrs = nil }, "no address"},
		"no secret":  {func(c *DialConfig) { c.Secret = auth.Secret{} }, "no secret"},
		"long name":  {func(c *DialConfig) { c.Name = strings.Repeat("n", auth.MaxHello+1) }, "4097 bytes"},
	} {
		cfg := dialConfig(deadAddr(t))
		c.change(&cfg)
		if _, err := Dial(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDialWaitsForServer dials an address where a server comes up later.
func TestDialWaitsForServer(t *testing.T) {
	addr := deadAddr(t)
	var log testkit.Journal
	cfg := dialConfig(addr)
	cfg.Log = log.Logger()
	dialled := make(chan error)
	go func() {
		c, err := Dial(bounded(t), cfg)
		if err == nil {
			err = c.Set(bounded(t), "k", nil)
			c.Close()
		}
		dialled <- err
	}()
	testkit.Eventually(t, "the first try fails", func() bool { return strings.Contains(log.String(), "connection refused") })
	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Skipf("another process took the port in the meantime: %v", err)
	}
	defer Serve(l, ServerConfig{Secret: secret, Binding: binding}).Close()
	if err := <-dialled; err != nil {
		t.Error(err)
	}
}

// TestDialLogsAReasonOnce is refused several times for one and the same reason.
func TestDialLogsAReasonOnce(t *testing.T) {
	t.Parallel() // most of it is a pause
	var refusals, log testkit.Journal
	otherRun := Serve(listen(t), ServerConfig{Secret: auth.Secret{9}, Binding: binding, Log: refusals.Logger()})
	defer otherRun.Close()
	cfg := dialConfig(otherRun.Addr())
	cfg.Log = log.Logger()
	ctx, cancel := context.WithCancel(bounded(t))
	dialled := make(chan error)
	go func() {
		_, err := Dial(ctx, cfg)
		dialled <- err
	}()
	testkit.Eventually(t, "three tries", func() bool { return strings.Count(refusals.String(), "did not prove") >= 3 })
	cancel()
	if err := <-dialled; !errors.Is(err, auth.ErrRefused) {
		t.Errorf("error %v, want ErrRefused", err)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("the reason was logged %d times: %s", n, log.String())
	}
}

// TestDialFindsTheRightServer has a dead address, a stranger and another run's server before the right one.
func TestDialFindsTheRightServer(t *testing.T) {
	otherRun := Serve(listen(t), ServerConfig{Secret: auth.Secret{9}, Binding: binding})
	defer otherRun.Close()
	right := serve(t, ServerConfig{})
	c, err := Dial(bounded(t), dialConfig(deadAddr(t), stranger(t), otherRun.Addr(), right.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.conn.RemoteAddr().String(); got != right.Addr().String() {
		t.Errorf("connected to %s", got)
	}
	if c.LocalAddr().String() != c.conn.LocalAddr().String() {
		t.Errorf("LocalAddr is %v", c.LocalAddr())
	}
}

// TestDialPassesSilentStrangers has programs that accept and say nothing at all addresses but the last: each
// of them alone would take a handshake's whole time.
func TestDialPassesSilentStrangers(t *testing.T) {
	var silent []net.Addr
	for range 7 {
		l := listen(t)
		defer l.Close()
		silent = append(silent, l.Addr()) // the kernel completes the connection, and nobody accepts it
	}
	var told events
	right := serve(t, told.config())
	begin := time.Now()
	c, err := Dial(bounded(t), dialConfig(append(silent, right.Addr())...))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > auth.Timeout/2 {
		t.Errorf("took %v", took)
	}
	c.Close()
	testkit.Eventually(t, "the client has left", func() bool { return len(told.all()) == 2 })
	if got := told.all(); !slices.Equal(got, []string{"joined client", "left client"}) {
		t.Errorf("the server was told %q", got)
	}
}

// stranger listens, and answers as a web server does.
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

// TestDialTellsEveryReason looks at the error when no address is right.
func TestDialTellsEveryReason(t *testing.T) {
	otherRun := Serve(listen(t), ServerConfig{Secret: auth.Secret{9}, Binding: binding})
	defer otherRun.Close()
	dead, web := deadAddr(t), stranger(t)
	cfg := dialConfig(dead, web, otherRun.Addr())
	cfg.Addrs = append(cfg.Addrs, "host.invalid:1") // RFC 2606: no such name
	var log testkit.Journal
	cfg.Log = log.Logger()
	ctx, cancel := context.WithCancel(bounded(t))
	dialled := make(chan error)
	go func() {
		_, err := Dial(ctx, cfg)
		dialled <- err
	}()
	testkit.Eventually(t, "every address was tried", func() bool { return strings.Count(log.String(), "\n") >= len(cfg.Addrs) })
	cancel()
	err := <-dialled
	var failed *DialError
	if !errors.As(err, &failed) || failed.Tries < len(cfg.Addrs) {
		t.Fatalf("error %v, want a DialError after a try each", err)
	}
	for _, want := range []error{context.Canceled, syscall.ECONNREFUSED, auth.ErrProtocol, auth.ErrRefused} {
		if !errors.Is(err, want) {
			t.Errorf("%v is not in %v", want, err)
		}
	}
	for _, part := range []string{
		dead.String() + ": connect: connection refused;", web.String() + ": handshake: ", "not a ddpbatch",
		otherRun.Addr().String() + ": handshake: the server refused this run's secret", "host.invalid:1: ",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %q", part, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
}

func TestDialEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := dialConfig(deadAddr(t), deadAddr(t))
	_, err := Dial(ctx, cfg)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), cfg.Addrs[1]+": not tried") {
		t.Errorf("error %v", err)
	}
}
