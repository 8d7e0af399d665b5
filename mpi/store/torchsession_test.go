package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

// le8 returns a number in 8 bytes, and str a key or a value, as PyTorch sends them.
func le8(n uint64) string    { return string(binary.LittleEndian.AppendUint64(nil, n)) }
func str(text string) string { return le8(uint64(len(text))) + text }

// dialTorch connects as a PyTorch client does, and sends hello first.
func dialTorch(t testing.TB, s *Server, hello string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(testkit.Patience))
	send(t, conn, hello)
	return conn
}

func send(t testing.TB, conn net.Conn, words string) {
	t.Helper()
	if _, err := io.WriteString(conn, words); err != nil {
		t.Fatal(err)
	}
}

func expectBytes(t testing.TB, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("the server said %q, %v; want %q", got[:n], err, want)
	}
}

// expectEnd checks that the server closes the connection and sends nothing more.
func expectEnd(t testing.TB, conn net.Conn) {
	t.Helper()
	if rest, err := io.ReadAll(conn); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server said %q, %v; want the end", rest, err)
	}
}

// TestTorch1TranscriptIsAnswered replays the bytes between a TCPStore client of PyTorch 1.13.1 and PyTorch's own server.
func TestTorch1TranscriptIsAnswered(t *testing.T) {
	conn := dialTorch(t, serve(t, ServerConfig{Torch: true}), "")
	for _, c := range []struct{ send, receive string }{
		{"03 0500000000000000 696e69742f 0100000000000000", "0100000000000000"},
		{"00 0200000000000000 2f6b 0200000000000000 7631", ""},
		{"05 0100000000000000 0200000000000000 2f6b", "00"},
		{"02 0200000000000000 2f6b", "0200000000000000 7631"},
		{"06", "0200000000000000"},
		{"04 0100000000000000 0200000000000000 2f6b", "00"},
		{"04 0200000000000000 0200000000000000 2f6b 0200000000000000 2f6c", "01"},
		{"04 0000000000000000", "00"},
		{"01 0200000000000000 2f6b 0200000000000000 7631 0100000000000000 32", "0100000000000000 32"},
		{"01 0200000000000000 2f6c 0100000000000000 78 0100000000000000 79", "0100000000000000 78"},
		{"08 0200000000000000 2f6b", "0100000000000000"},
		{"08 0200000000000000 2f6b", "0000000000000000"},
	} {
		send(t, conn, string(unhex(t, c.send)))
		expectBytes(t, conn, string(unhex(t, c.receive)))
	}
}

// TestTorch2QueriesAreAnswered sends all queries of the later form.
func TestTorch2QueriesAreAnswered(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true})
	conn := dialTorch(t, s, torchHello)
	for _, c := range []struct{ send, receive string }{
		{"\x0d\x01\x02\x03\x04", "\x01\x02\x03\x04"}, // PING
		{"\x01" + str("/k") + str("v1"), ""},
		{"\x03" + str("/k"), str("v1")},
		{"\x03" + str("/absent"), str("")},
		{"\x02" + str("/k") + str("v1") + str("v2"), str("v2")},
		{"\x02" + str("/k") + str("v1") + str("v3"), str("v2")},
		{"\x02" + str("/absent") + str("x") + str("y"), str("x")},
		{"\x04" + str("/n") + le8(1<<64-7), le8(1<<64 - 7)},
		{"\x03" + str("/n"), str("-7")},
		{"\x05" + le8(2) + str("/n") + str("/k"), "\x00"},
		{"\x05" + le8(2) + str("/n") + str("/absent"), "\x01"},
		{"\x06" + le8(2) + str("/n") + str("/k"), "\x00"},
		{"\x07", le8(2)},
		{"\x08" + str("/n"), le8(1)},
		{"\x08" + str("/n"), le8(0)},
		{"\x09" + str("/k") + str("+") + "\x09" + str("/new") + str(""), ""},
		{"\x0b" + le8(2) + str("/a") + str("1") + str("/b") + str(""), ""},
		{"\x0a" + le8(5) + str("/k") + str("/a") + str("/b") + str("/absent") + str("/new"), str("v2+") + str("1") +
			str("") + str("") + str("")},
		{"\x0a" + le8(0), ""},
		{"\x0c", "\x01"},             // CANCEL_WAIT without a wait
		{"\x0f" + str("/q"), le8(0)}, // QUEUE_POP of an empty queue
		{"\x0e" + str("/q") + str("first") + "\x0e" + str("/q") + str(""), ""}, // QUEUE_PUSH
		{"\x0e" + str("/k") + str("beside the value"), ""},
		{"\x10" + str("/q") + "\x10" + str("/absent"), le8(2) + le8(0)}, // QUEUE_LEN
		{"\x05" + le8(2) + str("/q") + str("/k"), "\x00"},
		{"\x06" + le8(2) + str("/q") + str("/k"), "\x00"},
		{"\x03" + str("/q"), str("")},
		{"\x0f" + str("/q") + "\x0f" + str("/q"), le8(2) + str("first") + le8(1) + str("")},
		{"\x05" + le8(1) + str("/q"), "\x01"},
		{"\x08" + str("/k") + "\x0f" + str("/k"), le8(1) + le8(1) + str("beside the value")},
		{"\x01" + str("/k") + str("v2+"), ""},
		{"\x07", le8(4)},
	} {
		send(t, conn, c.send)
		expectBytes(t, conn, c.receive)
	}
	if got, err := s.MultiGet(bounded(t), "/k", "/a"); err != nil || string(got[0]) != "v2+" || string(got[1]) != "1" {
		t.Errorf("the server itself has %q, %v", got, err)
	}
}

// TestTorchWaitEndsAtEveryChange wakes a client by every kind of change, by a PyTorch client and by ours.
func TestTorchWaitEndsAtEveryChange(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true})
	other := dialTorch(t, s, torchHello)
	for name, change := range map[string]func() error{
		"set": func() error { send(t, other, "\x01"+str("/k")+str("7")); return nil },
		"compareset": func() error {
			send(t, other, "\x02"+str("/k")+str("")+str("7"))
			expectBytes(t, other, str("7"))
			return nil
		},
		"add":      func() error { send(t, other, "\x04"+str("/k")+le8(7)); expectBytes(t, other, le8(7)); return nil },
		"append":   func() error { send(t, other, "\x09"+str("/k")+str("7")); return nil },
		"multiset": func() error { send(t, other, "\x0b"+le8(1)+str("/k")+str("7")); return nil },
		"ours":     func() error { return s.Set(bounded(t), "/k", []byte("7")) },
	} {
		for form, query := range map[string]string{"": "\x05", torchHello: "\x06"} {
			t.Run(fmt.Sprintf("%s, %q", name, form), func(t *testing.T) {
				if _, err := s.Delete(bounded(t), "/k"); err != nil {
					t.Fatal(err)
				}
				conn := dialTorch(t, s, form+query+le8(1)+str("/k"))
				testkit.Eventually(t, "it waits", func() bool { return s.waiters("/k") == 1 })
				if err := change(); err != nil {
					t.Fatal(err)
				}
				expectBytes(t, conn, "\x00")
			})
		}
	}
}

// TestTorchGivesUpWaiting ends a wait in the way of each form. A late reply to the wait does not arrive between other replies.
func TestTorchGivesUpWaiting(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true})
	for form, c := range map[string]struct{ wait, cancel, cancelled, count string }{
		"":         {"\x05", "", "", "\x06"},
		torchHello: {"\x06", "\x0c", "\x01", "\x07"},
	} {
		conn := dialTorch(t, s, form+c.wait+le8(1)+str("/late"))
		testkit.Eventually(t, "it waits", func() bool { return s.waiters("/late") == 1 })
		send(t, conn, c.cancel)
		expectBytes(t, conn, c.cancelled)
		send(t, conn, c.count)
		expectBytes(t, conn, le8(0))
		if err := s.Set(bounded(t), "/late", nil); err != nil {
			t.Fatal(err)
		}
		send(t, conn, c.count)
		expectBytes(t, conn, le8(1))
		if _, err := s.Delete(bounded(t), "/late"); err != nil {
			t.Fatal(err)
		}

		gone := dialTorch(t, s, form+c.wait+le8(1)+str("/never"))
		testkit.Eventually(t, "another waits", func() bool { return s.waiters("/never") == 1 })
		gone.Close()
		testkit.Eventually(t, "and is forgotten", func() bool { return s.awaited() == 0 })
	}
}

// TestTorchKeySpace has a hostile client use every query with keys that could lead out of its part of the store.
func TestTorchKeySpace(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true, TorchPrefix: "torch/"})
	ours := []string{"plan", "/plan", "torch"}
	for _, key := range ours {
		if err := s.Set(bounded(t), key, []byte("ours")); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"plan", "/plan", "torch", "", "/", "../plan", "./../plan", "torch/../plan",
		"\x00plan", "\b\b\b\b\b\bplan"} {
		conn := dialTorch(t, s, torchHello+"\x07")
		expectBytes(t, conn, le8(0)) // keys
		for _, c := range []struct{ send, receive string }{
			{"\x03" + str(key), str("")},                        // GET
			{"\x05" + le8(1) + str(key), "\x01"},                // CHECK: it does not exist
			{"\x0a" + le8(1) + str(key), str("")},               // MULTI_GET
			{"\x08" + str(key), le8(0)},                         // DELETE: no such key
			{"\x0f" + str(key), le8(0)},                         // QUEUE_POP
			{"\x02" + str(key) + str("x") + str("y"), str("x")}, // COMPARE_SET: no value yet
			{"\x09" + str(key) + str("z"), ""},                  // APPEND
			{"\x03" + str(key), str("z")},                       // GET: its own
			{"\x01" + str(key) + str("1"), ""},                  // SET
			{"\x04" + str(key) + le8(1), le8(2)},                // ADD
			{"\x0b" + le8(1) + str(key) + str("theirs"), ""},    // MULTI_SET
			{"\x0e" + str(key) + str("theirs"), ""},             // QUEUE_PUSH
			{"\x0f" + str(key), le8(1) + str("theirs")},         // QUEUE_POP
			{"\x08" + str(key), le8(1)},                         // DELETE: its own
		} {
			send(t, conn, c.send)
			expectBytes(t, conn, c.receive)
		}
	}
	expectList(t, s, "/plan=ours plan=ours torch=ours")
}

func TestTorchPrefixSeparatesKeys(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true, TorchPrefix: "torch"})
	if err := s.Set(bounded(t), "/k", []byte("ours")); err != nil {
		t.Fatal(err)
	}
	conn := dialTorch(t, s, torchHello+"\x05"+le8(1)+str("/k"))
	expectBytes(t, conn, "\x01")
	send(t, conn, "\x01"+str("/k")+str("theirs")+"\x07")
	expectBytes(t, conn, le8(1))
	expectList(t, s, "/k=ours torch/k=theirs")
}

// torchPipe serves one PyTorch client of the later form over a pipe, in a synctest bubble.
func torchPipe(t *testing.T, test func(t *testing.T, near net.Conn, s *torchSession, ended <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := &torchSession{
			store: newMemory(), conn: far, out: bufio.NewWriter(far), replies: &budget{most: MaxTorchReplies},
			in: torchReader{r: bufio.NewReader(far), form: torch2, allowance: &budget{most: MaxTorchBytes}},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.serve(ctx) }()
		test(t, near, s, ended)
		cancel()
		near.Close()
		synctest.Wait()
		if n := s.in.allowance.used; n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
		if n := s.replies.used; n != 0 {
			t.Errorf("%d bytes of replies are still held", n)
		}
	})
}

// TestSilentTorchClientIsKept has a client stay silent for an hour, before a query and during a wait.
func TestSilentTorchClientIsKept(t *testing.T) {
	torchPipe(t, func(t *testing.T, near net.Conn, _ *torchSession, _ <-chan error) {
		time.Sleep(time.Hour)
		send(t, near, "\x06"+le8(1)+str("/k"))
		time.Sleep(time.Hour)
		send(t, near, "\x0c")
		expectBytes(t, near, "\x01")
	})
}

// TestSlowTorchQueryIsEnded sends a query byte by byte, and never completely.
func TestSlowTorchQueryIsEnded(t *testing.T) {
	torchPipe(t, func(t *testing.T, near net.Conn, _ *torchSession, ended <-chan error) {
		begin := time.Now()
		var dripping sync.WaitGroup
		defer dripping.Wait()
		dripping.Go(func() {
			for _, b := range []byte("\x01" + le8(1000) + "a key, slowly, that does not end before it is cut off") {
				if _, err := near.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != torchQueryTime {
			t.Errorf("ended after %v: %v", time.Since(begin), err)
		}
	})
}

// TestTorchClientThatReadsNothingIsEnded has a client leave its reply unread.
func TestTorchClientThatReadsNothingIsEnded(t *testing.T) {
	torchPipe(t, func(t *testing.T, near net.Conn, _ *torchSession, ended <-chan error) {
		begin := time.Now()
		send(t, near, "\x07")
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != torchQueryTime {
			t.Errorf("ended after %v: %v", time.Since(begin), err)
		}
	})
}

// FuzzTorchSession sends arbitrary bytes to a session. The session must end, leave no call waiting, and account for its bytes.
func FuzzTorchSession(f *testing.F) {
	f.Add([]byte("\x01"+str("/k")+str("v1")+"\x06"+le8(2)+str("/k")+str("/l")+"\x0c\x07"), true)
	f.Add([]byte("\x0e"+str("/q")+str("v")+"\x06"+le8(1)+str("/q")+"\x0f"+str("/q")+"\x06"+le8(1)+str("/q")), true)
	f.Add([]byte("\x05"+le8(1)+str("/k")+"\x00"+str("/k")+str("v")+"\x02"+str("/k")), false)
	f.Fuzz(func(t *testing.T, words []byte, later bool) {
		m, conn, all := newMemory(), &deadlineFreeConn{scriptConn{in: bytes.NewReader(words)}}, &budget{most: MaxTorchBytes}
		replies := &budget{most: MaxTorchReplies}
		s := &torchSession{store: m, conn: conn, replies: replies, out: bufio.NewWriter(conn),
			in: torchReader{r: bufio.NewReader(conn), allowance: all}}
		if later {
			s.in.form = torch2
		}
		s.serve(t.Context())
		if n := m.awaited(); n != 0 {
			t.Errorf("%d keys are still waited for", n)
		}
		if n := all.used; n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
		if replies.used != 0 || len(replies.waiting) != 0 {
			t.Errorf("%d bytes are still held for replies, and %d wait", replies.used, len(replies.waiting))
		}
	})
}

// deadlineFreeConn ignores deadlines.
type deadlineFreeConn struct{ scriptConn }

func (deadlineFreeConn) SetReadDeadline(time.Time) error { return nil }

func (deadlineFreeConn) SetWriteDeadline(time.Time) error { return nil }
