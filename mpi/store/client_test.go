package store

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

// A client can set a key over the same connection over which it waits for the key.
func TestSetIsNotHeldUpByAWait(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := connect(t, s)
	got := make(chan string)
	go func() {
		value, err := c.Get(bounded(t), "k")
		if err != nil {
			t.Error(err)
		}
		got <- string(value)
	}()
	testkit.Eventually(t, "a call waits", func() bool { return s.waiters("k") == 1 })
	if err := c.Set(bounded(t), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if value := <-got; value != "v" {
		t.Errorf("got %q", value)
	}
}

// TestCancelledCallLeavesTheConnection cancels a wait, and checks that the next call gets its own reply.
func TestCancelledCallLeavesTheConnection(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := connect(t, s)
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := c.Get(ctx, "never")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want DeadlineExceeded", err)
		}
		if err := c.Set(bounded(t), "k", []byte("v")); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(bounded(t), "k"); string(got) != "v" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	testkit.Eventually(t, "nobody waits", func() bool { return s.awaited() == 0 })
}

// TestClientEndsItsWaits closes a client while its goroutines wait, and checks that the server forgets the waits.
func TestClientEndsItsWaits(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := connect(t, s)
	var waits sync.WaitGroup
	for range 10 {
		waits.Go(func() {
			if err := c.Wait(context.Background(), "never"); !errors.Is(err, ErrClosed) {
				t.Errorf("error %v, want ErrClosed", err)
			}
		})
	}
	testkit.Eventually(t, "all wait", func() bool { return s.waiters("never") == 10 })
	c.Close()
	waits.Wait()
	if err := c.Err(); !errors.Is(err, ErrClosed) {
		t.Errorf("Err is %v", err)
	}
	testkit.Eventually(t, "the server forgets", func() bool { return s.awaited() == 0 })
}

func TestLostConnectionEndsEveryCall(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(net.Conn)
		want string
	}{
		"closed":  {func(conn net.Conn) { conn.Close() }, "EOF"},
		"reset":   {func(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0); conn.Close() }, "connection reset"},
		"rubbish": {func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n") }, "malformed"},
		"half":    {func(conn net.Conn) { io.WriteString(conn, "\x00\x00\x00\x20"); conn.Close() }, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t)
			defer l.Close()
			near, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			far, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			client := newClient(near)
			defer client.Close()
			if err := client.Err(); err != nil {
				t.Errorf("Err is %v while the connection lives", err)
			}

			pending := make(chan error)
			go func() { _, err := client.Get(bounded(t), "k"); pending <- err }()
			if _, err := io.ReadFull(far, make([]byte, 18)); err != nil { // the whole request, so that close sends no reset
				t.Fatal(err)
			}
			c.end(far)
			errs := map[string]error{"pending get": <-pending}
			<-client.Done()
			for name, err := range calls(bounded(t), client) {
				errs["later "+name] = err
			}
			errs["Err"] = client.Err()
			for name, err := range errs {
				var lost *LostError
				if !errors.As(err, &lost) || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v; want the address and %q", name, err, c.want)
				}
			}
		})
	}
}

// If the server neither reads nor answers, calls end with their contexts.
func TestCallsEndThoughTheServerIsSilent(t *testing.T) {
	for name, c := range map[string]struct {
		call  func(context.Context, *Client) error
		takes bool
		want  string
	}{
		"get": {func(ctx context.Context, c *Client) error { _, err := c.Get(ctx, "k"); return err }, true,
			`waiting for "k": context deadline exceeded, and the server does not answer`},
		"wait": {func(ctx context.Context, c *Client) error { return c.Wait(ctx, "a", "b") }, true,
			`waiting for "a", "b": context deadline exceeded, and the server does not answer`},
		"set": {func(ctx context.Context, c *Client) error { return c.Set(ctx, "k", nil) }, true,
			`set "k": context deadline exceeded, and the server does not answer: whether it was done is not known`},
		"set, nothing is taken": {func(ctx context.Context, c *Client) error { return c.Set(ctx, "k", nil) }, false,
			`set "k": context deadline exceeded, and the server does not answer: whether it was done is not known`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				var peer sync.WaitGroup
				if c.takes {
					peer.Go(func() { io.Copy(io.Discard, far) })
				}
				client := newClient(near)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begin := time.Now()
				if err := c.call(ctx, client); err == nil || err.Error() != c.want {
					t.Errorf("error %q, want %q", err, c.want)
				}
				if took, want := time.Since(begin), time.Second+cancelGrace; took != want {
					t.Errorf("took %v, want %v", took, want)
				}
				client.Close()
				far.Close()
				peer.Wait()
			})
		})
	}
}

// Calls end with their contexts even if there are more than fit in the connection.
func TestCallsThatNeverLeftSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		client := newClient(near)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				if err := client.Set(ctx, "k", make([]byte, 20_000)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(begin); took > time.Second+cancelGrace {
			t.Errorf("took %v", took)
		}
	})
}
