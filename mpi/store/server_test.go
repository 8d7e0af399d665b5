package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

// events records the calls of Joined and Left.
type events struct {
	mu   sync.Mutex
	list []string
	busy bool
}

func (e *events) config() ServerConfig {
	return ServerConfig{
		Joined: func(name string, local net.Addr) { e.add("joined " + name) },
		Left:   func(name string) { e.add("left " + name) },
	}
}

func (e *events) add(event string) {
	e.mu.Lock()
	if e.busy {
		event += " (while another was told)"
	}
	e.busy = true
	e.mu.Unlock()
	for range 100 { // time for another call, if one is possible
		runtime.Gosched()
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list, e.busy = append(e.list, event), false
	}()
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// One store is served on several addresses, and after its end on none of them.
func TestServeAll(t *testing.T) {
	listeners := []net.Listener{listen(t), listen(t)}
	s := ServeAll(listeners, ServerConfig{Secret: secret, Binding: binding})
	ctx := bounded(t)
	var clients []*Client
	for i, l := range listeners {
		c, err := Dial(ctx, l.Addr().String(), dialConfig())
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		if err := c.Set(ctx, fmt.Sprint(i), []byte("set")); err != nil {
			t.Error(err)
		}
	}
	for i, c := range clients {
		for key := range listeners {
			if value, err := c.Get(ctx, fmt.Sprint(key)); string(value) != "set" || err != nil {
				t.Errorf("client %d finds %q, %v", i, value, err)
			}
		}
	}
	if got := s.Addr(); got != listeners[0].Addr() {
		t.Errorf("it is at %v", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for i, l := range listeners {
		clients[i].Close()
		if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
			conn.Close()
			t.Errorf("listener %d is open after its server's end", i)
		}
	}
}

func TestServerReportsWhoJoinedAndLeft(t *testing.T) {
	var notified events
	var local net.Addr
	cfg := notified.config()
	notify := cfg.Joined
	cfg.Joined = func(name string, addr net.Addr) { local = addr; notify(name, addr) }
	s := serve(t, cfg)
	var want []string
	expect := func(event string) {
		want = append(want, event)
		testkit.Eventually(t, fmt.Sprint(want), func() bool { return slices.Equal(notified.all(), want) })
	}

	a := connectAs(t, s, "rank 0")
	expect("joined rank 0")
	if local.String() != s.Addr().String() {
		t.Errorf("the client reached %v, and not %v", s.Addr(), local)
	}
	connectAs(t, s, "rank 1")
	expect("joined rank 1")
	a.Close()
	expect("left rank 0")
	connectAs(t, s, "rank 0")
	expect("joined rank 0")
	s.Close()
	last := notified.all()[len(want):]
	slices.Sort(last)
	if !slices.Equal(last, []string{"left rank 0", "left rank 1"}) {
		t.Errorf("Close told %q", last)
	}
}

func TestServerRefuses(t *testing.T) {
	var notified events
	var log testkit.Journal
	cfg := notified.config()
	cfg.Log = log.Logger()
	for name, c := range map[string]struct {
		change func(*DialConfig)
	}{
		"secret":  {func(c *DialConfig) { c.Secret[5]++ }},
		"run":     {func(c *DialConfig) { c.Binding.Run += "x" }},
		"attempt": {func(c *DialConfig) { c.Binding.Attempt++ }},
		"role":    {func(c *DialConfig) { c.Binding.Role = "transport" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, cfg) // it logs each host once
			cfg := dialConfig()
			c.change(&cfg)
			before := strings.Count(log.String(), "\n")
			conn, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			keys, err := cfg.check()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := handshake(bounded(t), conn, &cfg, keys); !errors.Is(err, auth.ErrRefused) ||
				errors.Is(err, ErrOtherSecret) != (name == "secret") {
				t.Errorf("error %v, want ErrRefused, and ErrOtherSecret of the secret alone", err)
			}
			testkit.Eventually(t, "it is logged", func() bool { return strings.Count(log.String(), "\n") > before })
			line := strings.Split(log.String(), "\n")[before]
			for _, part := range []string{"level=WARN", "remote=" + conn.LocalAddr().String(), "did not prove"} {
				if !strings.Contains(line, part) {
					t.Errorf("%q is missing in %s", part, line)
				}
			}
		})
	}
	for _, leak := range []string{secret.Hex()[:6], string(secret[:3])} {
		if strings.Contains(log.String(), leak) {
			t.Errorf("the log shows the secret: %s", log.String())
		}
	}
	if got := notified.all(); len(got) > 0 {
		t.Errorf("the refused connections were logged as %q", got)
	}
}

// TestRubbishDisturbsNobody has a thousand strangers send rubbish, or nothing, and stay connected, while one client works and others
// connect.
func TestRubbishDisturbsNobody(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := connect(t, s)
	preface := string(auth.AppendPreface(nil, auth.Version))
	var strangers sync.WaitGroup
	fastest := time.Duration(math.MaxInt64)
	defer strangers.Wait()
	for i := range 1000 {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		words := []string{"", "d", "ddpbatch\x00", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01", preface,
			preface + "\x16\x03\x01\x02\x00\x01"}[i%7]
		strangers.Go(func() { io.WriteString(conn, words) })
		if i%100 != 99 {
			continue
		}
		ctx, begun := bounded(t), time.Now()
		if err := c.Set(ctx, "k", []byte{byte(i)}); err != nil {
			t.Fatalf("after %d strangers: %v", i, err)
		}
		newcomer, err := Dial(ctx, s.Addr().String(), dialConfig())
		if err != nil {
			t.Fatalf("after %d strangers: %v", i, err)
		}
		if got, err := newcomer.Get(ctx, "k"); err != nil || !bytes.Equal(got, []byte{byte(i)}) {
			t.Errorf("a newcomer got %q, %v", got, err)
		}
		newcomer.Close()
		if i >= 500 {
			fastest = min(fastest, time.Since(begun))
		}
	}
	if fastest > auth.Timeout/2 { // other work on the machine may delay one of the last five, but hardly all of them
		t.Errorf("a newcomer waits for strangers to end: none was served within %v, the fastest in %v", auth.Timeout/2, fastest)
	}
}

// TestServerCloseEndsEveryConnection closes a server with strangers, idle clients and waiting ones.
func TestServerCloseEndsEveryConnection(t *testing.T) {
	s := serve(t, ServerConfig{})
	stranger, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	c := connect(t, s)
	waiting := make(chan error)
	go func() { _, err := c.Get(bounded(t), "never"); waiting <- err }()
	testkit.Eventually(t, "the client waits", func() bool { return s.waiters("never") == 1 })
	s.Close()
	var lost *LostError
	if err := <-waiting; !errors.As(err, &lost) && !errors.Is(err, ErrClosed) {
		t.Errorf("the waiting call got %v", err)
	}
	<-c.Done()
	if err := c.Err(); !errors.As(err, &lost) || lost.Addr != s.Addr().String() {
		t.Errorf("the client says %v", err)
	}
	if _, err := net.DialTimeout("tcp", s.Addr().String(), testkit.Patience); err == nil {
		t.Error("the server still listens")
	}
}
