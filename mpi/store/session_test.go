package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/secure"
	"ddpbatch/internal/testkit"
)

// rawClient is a peer that knows the secret and may send anything.
func rawClient(t testing.TB, s *Server, name string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	keys, err := secure.NewClient(secret, binding)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := keys.Open(bounded(t), conn, name)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// TestHostileClientEndsAlone sends what no client sends, and checks that only its own connection ends.
func TestHostileClientEndsAlone(t *testing.T) {
	s := serve(t, ServerConfig{})
	other := connect(t, s)
	get := request{id: 1, op: opGet, key: "never"}
	for name, words := range map[string][]byte{
		"http":           []byte("GET / HTTP/1.1\r\n\r\n"),
		"huge frame":     {0xff, 0xff, 0xff, 0xff},
		"empty frame":    {0, 0, 0, 0},
		"unknown op":     unhex(t, "00000009 0000000000000001 63"),
		"lying lengths":  unhex(t, "0000000e 0000000000000001 02 000000ff 6b"),
		"same id twice":  append(get.frame(), get.frame()...),
		"a frame halved": unhex(t, "0000000e 0000000000000001 02"),
	} {
		t.Run(name, func(t *testing.T) {
			conn := rawClient(t, s, name)
			if _, err := conn.Write(words); err != nil {
				t.Fatal(err)
			}
			if name == "a frame halved" {
				conn.(*tls.Conn).CloseWrite()
			}
			conn.SetReadDeadline(time.Now().Add(testkit.Patience))
			if answer, err := io.ReadAll(conn); len(answer) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the server answered %q, %v", answer, err)
			}
			if err := other.Set(bounded(t), "k", []byte(name)); err != nil {
				t.Errorf("another client: %v", err)
			}
		})
	}
	testkit.Eventually(t, "nobody waits any more", func() bool { return s.awaited() == 0 })
}

// TestTooManyWaitsAreRefused makes as many waits on one connection as the limit allows, and one more.
func TestTooManyWaitsAreRefused(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := connect(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	var waits sync.WaitGroup
	defer waits.Wait()
	defer cancel()
	for range MaxWaiting {
		waits.Go(func() {
			if _, err := c.Get(ctx, "never"); !errors.Is(err, context.Canceled) {
				t.Errorf("a waiting call got %v", err)
			}
		})
	}
	testkit.Eventually(t, "all wait", func() bool { return s.waiters("never") == MaxWaiting })
	if _, err := c.Get(bounded(t), "never"); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v, want ErrBusy", err)
	}
	if err := c.Set(bounded(t), "k", nil); err != nil {
		t.Errorf("what does not wait: %v", err)
	}
	if err := c.Wait(bounded(t), "k"); err != nil {
		t.Errorf("what is there already: %v", err)
	}
}

// TestTooLargeWaitsAreRefused makes a few waits with large requests.
func TestTooLargeWaitsAreRefused(t *testing.T) {
	s := serve(t, ServerConfig{})
	conn := rawClient(t, s, "hoarder")
	keys := make([]string, 2000)
	for i := range keys {
		keys[i] = string(binary.BigEndian.AppendUint32(make([]byte, MaxKey-4), uint32(i))) // 16 MB together
	}
	for id := range uint64(5) {
		req := request{id: id, op: opWait, keys: keys}
		if _, err := conn.Write(req.frame()); err != nil {
			t.Fatal(err)
		}
	}
	replies := bufio.NewReader(conn)
	expect := func(id uint64, want replyCode) {
		t.Helper()
		frame, err := readFrame(replies, nil)
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := parseReply(frame); err != nil || rep.id != id || rep.code != want {
			t.Fatalf("reply to request %d, status %d, error %v; want request %d, status %d", rep.id, rep.code, err, id, want)
		}
	}
	expect(4, replyBusy)

	// A canceled wait makes room.
	for _, req := range []request{{id: 0, op: opCancel}, {id: 5, op: opWait, keys: keys}, {id: 6, op: opSet}} {
		if _, err := conn.Write(req.frame()); err != nil {
			t.Fatal(err)
		}
		if req.op == opCancel {
			expect(0, replyCancelled)
		}
	}
	expect(6, replyDone)
}

// FuzzSession sends arbitrary bytes to a session after the proof. The session must end, leave no call waiting, and account for its memory.
func FuzzSession(f *testing.F) {
	var all []byte
	for _, c := range requests {
		f.Add(unhex(f, c.frame))
		all = append(all, unhex(f, c.frame)...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, words []byte) {
		m := newMemory()
		err := newSession(t.Context(), m, &scriptConn{in: bytes.NewReader(words)}).serve()
		if err != nil && !errors.Is(err, errMalformed) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("error %v", err)
		}
		if n := m.awaited(); n != 0 {
			t.Errorf("%d keys are still waited for", n)
		}
		size := 0
		for key, value := range m.values {
			size += len(key) + len(value)
		}
		if size != m.size {
			t.Errorf("size is %d, and should be %d", m.size, size)
		}
	})
}

// scriptConn reads the contents of in, and discards what is written.
type scriptConn struct {
	net.Conn
	in *bytes.Reader
}

func (c *scriptConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *scriptConn) Write(p []byte) (int, error) { return len(p), nil }
func (c *scriptConn) Close() error                { return nil }
