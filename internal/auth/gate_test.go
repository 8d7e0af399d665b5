package auth

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

// guard runs a gate in a synctest bubble while test runs. The gate's listener first fails the given number of times.
func guard(t *testing.T, room, failures int, serve func(net.Conn, []byte) error,
	test func(t *testing.T, l *failingListener, log *testkit.Journal)) {
	synctest.Test(t, func(t *testing.T) {
		l := &failingListener{pipeListener: newPipeListener(), failures: failures}
		var log testkit.Journal
		open := func(ctx context.Context, conn net.Conn) (net.Conn, []byte, error) {
			hello, err := Server(ctx, conn, counting(), binding, []byte("s"))
			return conn, hello, err
		}
		g := &Gate{Role: binding.Role, Room: room, Open: open, Log: log.Logger()}
		ctx, cancel := context.WithCancel(t.Context())
		var served sync.WaitGroup
		served.Go(func() { g.Serve(ctx, l, serve) })
		test(t, l, &log)
		cancel()
		l.Close()
		served.Wait()
	})
}

func TestGateServesHoldersOfTheKey(t *testing.T) {
	var hellos []string // written before the client's stream ends
	serve := func(conn net.Conn, hello []byte) error {
		hellos = append(hellos, string(hello))
		conn.Read(make([]byte, 1)) // until the client has finished the handshake: the other end sees the close of a pipe at once
		if string(hello) == "unwelcome" {
			return errors.New("not you")
		}
		defer conn.Close()
		_, err := io.WriteString(conn, "in")
		return err
	}
	guard(t, 1, 0, serve, func(t *testing.T, l *failingListener, log *testkit.Journal) {
		for hello, want := range map[string]string{"rank 1": "in", "unwelcome": ""} {
			conn := l.dial()
			peer, err := Client(t.Context(), conn, counting(), binding, []byte(hello))
			if err != nil || string(peer) != "s" {
				t.Errorf("%s: got %q, %v", hello, peer, err)
			}
			conn.Write([]byte("x"))
			if got, err := io.ReadAll(conn); string(got) != want || err != nil {
				t.Errorf("%s: read %q, %v", hello, got, err)
			}
			if got := hellos[len(hellos)-1]; got != hello {
				t.Errorf("served %q, want %q", got, hello)
			}
		}
		synctest.Wait()
		if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], `"store: connection refused"`) ||
			!strings.Contains(lines[0], "not you") {
			t.Errorf("log: %q", lines)
		}
	})
}

// TestGateTimesOut sends nothing, and is cut off after Timeout.
func TestGateTimesOut(t *testing.T) {
	guard(t, 1, 0, nil, func(t *testing.T, l *failingListener, log *testkit.Journal) {
		begin := time.Now()
		if _, err := l.dial().Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("error %v, want EOF", err)
		}
		if took := time.Since(begin); took != Timeout {
			t.Errorf("took %v, want %v", took, Timeout)
		}
		synctest.Wait()
		if lines := log.Lines(); !strings.Contains(lines[0], "connection refused") {
			t.Errorf("log: %q", lines)
		}
	})
}

// TestGateMakesRoom opens one silent connection more than the gate has room for.
func TestGateMakesRoom(t *testing.T) {
	const room = 5
	guard(t, room, 0, nil, func(t *testing.T, l *failingListener, log *testkit.Journal) {
		conns := make([]net.Conn, room+1)
		for i := range conns {
			conns[i] = l.dial()
			synctest.Wait()
		}
		if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], errTooManyPending.Error()) {
			t.Errorf("log: %q", lines)
		}
		begin := time.Now()
		for i, conn := range conns[:2] {
			_, err := conn.Read(make([]byte, 1))
			if after := []time.Duration{0, Timeout}[i]; err != io.EOF || time.Since(begin) != after {
				t.Errorf("connection %d: %v after %v, want EOF after %v", i, err, time.Since(begin), after)
			}
		}
	})
}

// TestGateLogsFewerAndFewer sends garbage many times.
func TestGateLogsFewerAndFewer(t *testing.T) {
	guard(t, 1, 0, nil, func(t *testing.T, l *failingListener, log *testkit.Journal) {
		for range 100 {
			conn := l.dial()
			io.WriteString(conn, "GET / HTTP")
			conn.Close()
			synctest.Wait()
		}
		lines := log.Lines()
		if len(lines) != 16+2 || !strings.Contains(lines[16], "so_far=32") || !strings.Contains(lines[17], "so_far=64") {
			t.Errorf("%d lines: %q", len(lines), lines)
		}
	})
}

// TestGateReportsAStrangerOnce has a client with another secret try again and again.
func TestGateReportsAStrangerOnce(t *testing.T) {
	guard(t, 1, 0, nil, func(t *testing.T, l *failingListener, log *testkit.Journal) {
		other := counting()
		other[0]++
		for range 5 {
			conn := l.dial()
			if _, err := Client(t.Context(), conn, other, binding, nil); !errors.Is(err, ErrRefused) {
				t.Errorf("it got %v", err)
			}
			conn.Close()
			synctest.Wait()
		}
		if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], ErrUnproved.Error()) ||
			!strings.Contains(lines[0], "remote=pipe") {
			t.Errorf("log: %q", lines)
		}
	})
}

// TestGateReportsEveryHost has one host try so often that its lines are suppressed, and then other hosts try.
func TestGateReportsEveryHost(t *testing.T) {
	var log testkit.Journal
	g := &Gate{Log: log.Logger()}
	refuse := func(host byte, err error) {
		g.refuse(t.Context(), connFrom{addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, host), Port: 1}}, err)
	}
	for range 20 {
		refuse(1, ErrUnproved)
	}
	for range 20 {
		refuse(2, ErrUnproved)
	}
	refuse(3, ErrProtocol)
	lines := log.Lines()
	for i, want := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		if len(lines) != 3 || !strings.Contains(lines[i], want) {
			t.Fatalf("%d lines, want one of each host: %q", len(lines), lines)
		}
	}
	// even many hosts cause only a bounded number of lines
	for i := range 2 * maxUnproved {
		g.refuse(t.Context(), connFrom{addr: &net.TCPAddr{IP: net.IPv4(10, 1, byte(i>>8), byte(i)), Port: 1}}, ErrUnproved)
	}
	if n := len(log.Lines()); n != maxUnproved+1 {
		t.Errorf("%d lines, want %d", n, maxUnproved+1)
	}
}

// connFrom is a connection of which only RemoteAddr is called.
type connFrom struct {
	net.Conn
	addr net.Addr
}

func (c connFrom) RemoteAddr() net.Addr { return c.addr }

// TestGateGoesOnWithoutDescriptors has the listener run out of file descriptors for a while.
func TestGateGoesOnWithoutDescriptors(t *testing.T) {
	guard(t, 1, 12, func(net.Conn, []byte) error { return nil }, func(t *testing.T, l *failingListener, _ *testkit.Journal) {
		begin := time.Now()
		conn := l.dial()
		defer conn.Close()
		if _, err := Client(t.Context(), conn, counting(), binding, nil); err != nil {
			t.Error(err)
		}
		// Each pause is between a half and the whole of its bound: 10 ms, doubled six times, then 1 s five times.
		if took, most := time.Since(begin), 127*10*time.Millisecond+5*time.Second; took < most/2 || took > most {
			t.Errorf("took %v, want %v to %v", took, most/2, most)
		}
	})
}

type failingListener struct {
	*pipeListener
	failures int
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures--; l.failures >= 0 {
		return nil, errors.New("too many open files")
	}
	return l.pipeListener.Accept()
}

// pipeListener accepts the far ends of pipes.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial() net.Conn {
	near, far := net.Pipe()
	l.conns <- far
	return near
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }
